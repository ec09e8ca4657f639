package redisnode_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http/httptest"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/node/redisnode"
)

// The servers' certificates are signed by an authority of your own.
func ExampleDialOptions() {
	authority := httptest.NewTLSServer(nil) // or os.ReadFile("/etc/redis/ca.pem")
	defer authority.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate().Raw})

	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		fmt.Println("no certificate")
		return
	}
	var servers []*redis.Options
	for _, url := range []string{"rediss://app@10.0.0.1:6379", "rediss://app@10.0.0.2:6379", "rediss://app@10.0.0.3:6379"} {
		o, err := redisnode.ParseURL(url)
		if err != nil {
			fmt.Println(err)
			return
		}
		o.TLSConfig.RootCAs, o.TLSConfig.MinVersion = roots, tls.VersionTLS13
		o.Password = "secret" // from where your secrets are
		servers = append(servers, o)
	}
	nodes, err := redisnode.DialOptions(servers...) // it connects in the background
	fmt.Println(len(nodes), err)
	for _, n := range nodes {
		n.Close()
	}
	// Output: 3 <nil>
}
