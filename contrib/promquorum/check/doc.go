// Package check tests dashboard.json and alerts.yaml with the parsers of Prometheus
// itself, and with promtool if it is installed. It is a module of its own, so that users
// of the Collector do not get Prometheus.
package check
