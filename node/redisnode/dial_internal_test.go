package redisnode

import (
	"strings"
	"testing"
)

// Whatever a password is cut into at its commas, and whatever of it is special
// in a URL, no error shows any of it.
func FuzzParseURL(f *testing.F) {
	const secret = "s3cret"
	for _, special := range []string{"", ",", ":", "/", "?", "#", "@", "%", " ", "[", "]", ":12/", ":12?", "@h/", "://", ",x://"} {
		f.Add("redis://user:", special, "@127.0.0.1:80")
		f.Add("redis://", special, "")
		f.Add("user:1", special, "@127.0.0.1:80")
		f.Add("", special, ":80")
		f.Add("unix://user:1", special, "@/run/redis.sock")
	}
	f.Fuzz(func(t *testing.T, before, special, after string) {
		for u := range strings.SplitSeq(before+special+secret+special+after, ",") {
			if _, err := ParseURL(u); err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%q: a password in %q", u, err)
			}
		}
	})
}
