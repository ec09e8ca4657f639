package quorum

import (
	"encoding/base64"
	"reflect"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
)

// Whatever is taken for a handle is one: what it says makes the same handle again.
func FuzzHandle(f *testing.F) {
	for _, body := range []string{
		"", "{}", `{"names":["x"],"owner":"o","token":1,"high":1,"lease_ns":1,"at_ns":1}`,
		`{"names":["x","y"],"mode":1,"owner":"o","token":1,"high":2,"lease_ns":1,"fixed_left_ns":1,"hold_left_ns":1,"at_ns":1}`,
	} {
		f.Add("redquorum1." + base64.RawURLEncoding.EncodeToString([]byte(body)))
	}
	f.Add("redquorum2.")
	f.Fuzz(func(t *testing.T, text string) {
		said, err := Handle(text).parse()
		if err != nil {
			return
		}
		again, err := said.handle().parse()
		assert.That(t, err == nil && reflect.DeepEqual(again, said), "%+v became %+v: %v", said, again, err)
	})
}
