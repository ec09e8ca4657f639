package main

import "testing"

// Eight processes that each start a cluster of their own would be measured together
// with 24 members of etcd.
func TestWhichArgumentsWantEtcd(t *testing.T) {
	for _, c := range []struct {
		args    []string
		started bool // by the process that measures
		want    bool
	}{
		{nil, false, true},
		{[]string{"--spawn", "--n", "5"}, false, true},
		{[]string{"--contestants", "redsync,etcd"}, false, true},
		{[]string{"-contestants=redsync, etcd"}, false, true},
		{[]string{"--contestants", "redsync"}, false, false},
		{[]string{"--help"}, false, false},
		{[]string{"--child"}, false, false},
		{[]string{"--child"}, true, true},
	} {
		t.Setenv(etcdEnv, "")
		if c.started {
			t.Setenv(etcdEnv, "127.0.0.1:1")
		}
		if got := wanted(c.args, "etcd"); got != c.want {
			t.Errorf("%q, started: %v: wanted is %v", c.args, c.started, got)
		}
	}
}
