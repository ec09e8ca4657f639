package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
)

func TestWithPort(t *testing.T) {
	for host, want := range map[string]string{
		"a":                   "a:6379",
		"redis-1.example.com": "redis-1.example.com:6379",
		"10.0.0.1":            "10.0.0.1:6379",
		"::1":                 "[::1]:6379",
		"[::1]":               "[::1]:6379",
		"fe80::1%lo":          "[fe80::1%lo]:6379",
		"[fe80::1%lo]":        "[fe80::1%lo]:6379",
		"[fe80::1%lo]:7000":   "[fe80::1%lo]:7000",
		"[::1]:7000":          "[::1]:7000",
		"a:7000":              "a:7000",
		"a:":                  "a:",
		"redis://a":           "redis://a",
		"u@a":                 "u@a",
		"":                    "",
	} {
		assert.Equal(t, withPort(host), want, host)
	}
}

// An error shows which node is meant, and nothing that may be a password.
func TestMasked(t *testing.T) {
	const s = "s3kr1t"
	for _, c := range []struct{ list, want string }{
		{"10.0.0.1:70000", `, "10.0.0.1:70000"`},
		{"10.0.0.1:" + s, `, "10.0.0.1:..."`},
		{"http://10.0.0.1:80/" + s, `, "http://10.0.0.1:80..."`},
		{"redis://u:" + s + "@h:port", `, "redis://***@h:..."`},
		{"redis://u:" + s + "@h:1/x", `, "redis://***@h:1..."`},
		{"redis://u:" + s, `, "redis://u:..."`},
		{"redis://h:1?password=" + s, `, "redis://h:1..."`},
		{"redis://h:1?password=x@" + s, ""},
		{"redis://u:1," + s + ",x@h", ""},
		{"redis://u:x@" + s + "/,x@h", ""},
	} {
		urls := strings.Split(c.list, ",")
		got := masked(urls, urls[0])
		assert.That(t, got == c.want && !strings.Contains(got, s), "%s: %s, want %s", c.list, got, c.want)
	}
	assert.Says(t, assert.ErrorOf(Servers(List("10.0.0.1, 10.0.0.2:70000,10.0.0.3"))), `server 2 of 3, "10.0.0.2:70000": not a URL`)
}

// The Sentinels of a URL are separated as URLs are, and belong together.
func TestSentinelsOfOneURLStayTogether(t *testing.T) {
	got := List("sentinel://me:pw@s1:1, s2:2,s3:3/main?replicas=2,redis://a:1?replicas=1, b:2,rediss+sentinel://s1/main?replicas=1,c:3")
	want := []string{"sentinel://me:pw@s1:1,s2:2,s3:3/main?replicas=2", "redis://a:1?replicas=1", "b:2", "rediss+sentinel://s1/main?replicas=1", "c:3"}
	assert.That(t, slices.Equal(got, want), "%q, want %q", got, want)
	if servers, err := Nodes(got); err != nil || servers[0].Replicas != 2 || servers[0].Addr != "main@s1:1" || servers[2].Replicas != 0 {
		t.Errorf("%+v, %v", servers, err)
	}
	for list, wrong := range map[string]string{got[1]: "only single servers", got[0]: "only single servers", "a,,b": "server 2 of 3, \"\": nothing", "a,": "server 2 of 2",
		"http://h": "sentinel"} {
		if _, err := Servers(List(list)); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, want %s", list, err, wrong)
		}
	}
	assert.That(t, List(" ") == nil, "a blank list has servers")
}

func TestProduct(t *testing.T) {
	for _, tt := range []struct {
		fields        map[string]string
		name, version string
	}{
		{map[string]string{"redis_version": "8.2.3"}, "Redis", "8.2.3"},
		{map[string]string{"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "9.1.2"}, "Valkey", "9.1.2"},
		{nil, "Redis", ""},
	} {
		if name, version := Product(tt.fields); name != tt.name || version != tt.version {
			t.Errorf("%v: %s %s, want %s %s", tt.fields, name, version, tt.name, tt.version)
		}
	}
}
