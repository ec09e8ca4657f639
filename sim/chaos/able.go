package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/process"
	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/sim/live"
)

// Able returns nil if a plan can be carried out here, and otherwise an error that names
// all that cannot.
func Able(p *faults.Plan, config Config) error {
	var lacks []string
	lack := func(what string) {
		if !slices.Contains(lacks, what) {
			lacks = append(lacks, what)
		}
	}
	if p.Lock.Mistake != "" {
		lack("lock mistake=" + string(p.Lock.Mistake) + ": only the simulator's clients make it")
	}
	if p.Lock.Replicas > 0 {
		lack("lock replicas=: its nodes are one server each")
	}
	for c := range p.Clients {
		if !p.Scripted(c) {
			for _, share := range live.Undrawn(&p.Work) {
				lack("work " + share + "=: its clients do not do that")
			}
		}
	}
	for i := range p.Events {
		if what := unable(p.Events[i].Verb); what != "" {
			lack(what)
		}
	}
	if runtime.GOOS != "linux" && slices.ContainsFunc(p.Events, func(e faults.Event) bool { return e.Verb == faults.Full && e.Mode == faults.Disk }) {
		lack("full disk: the files of a server can be limited on Linux only")
	}
	if config.Upgrade != "" {
		if _, err := exec.LookPath(config.Upgrade); err != nil {
			lack(fmt.Sprintf("the upgrade: %v", err))
		}
	}
	if movesServers(p) {
		if err := clockWorks(config.Server); err != nil {
			lack(err.Error())
		}
	}
	if lacks == nil {
		return nil
	}
	return fmt.Errorf("this plan cannot be carried out here: %s", strings.Join(lacks, "; "))
}

// unable says why what a verb says cannot be done here, or is "".
func unable(verb faults.Verb) string {
	switch verb {
	case faults.Forge:
		return string(verb) + ": there is nobody else on its servers"
	case faults.DoDetach, faults.DoHandle, faults.DoResume, faults.DoBreak:
		return string(verb) + ": its clients do not do that"
	case faults.Pause, faults.Suspend:
		if process.Stop == nil {
			return string(verb) + ": processes cannot be stopped on " + runtime.GOOS
		}
	}
	return ""
}

// movesServers reports whether the plan moves the clock of a server.
func movesServers(p *faults.Plan) bool {
	return slices.ContainsFunc(p.Events, func(e faults.Event) bool { return e.Procs.Nodes != 0 && e.MovesClock() })
}

var clocks sync.Map // whether they work, by the server's program

// clockWorks returns nil if the clock of such servers can be moved. It starts one to see.
func clockWorks(server string) error {
	try, _ := clocks.LoadOrStore(server, sync.OnceValue(func() error { return tryClock(server) }))
	return try.(func() error)()
}

func tryClock(server string) error {
	dir, err := os.MkdirTemp("", "redquorum-clock-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	library, err := compileClock(dir)
	if err != nil {
		return err
	}
	f, err := newFace(dir + "/clock")
	if err != nil {
		return err
	}
	defer f.file.Close()
	const ahead = 24 * time.Hour
	if err := f.show(faults.Day{Ahead: ahead}, monotonic()); err != nil {
		return err
	}
	s, err := redisserver.Start(redisserver.Config{Binary: server, Env: []string{"LD_PRELOAD=" + library,
		faceVariable + "=" + f.path}})
	if err != nil {
		return err
	}
	defer s.Close()
	return admin(s, func(c *redis.Client) error {
		shown, err := c.Time(context.Background()).Result()
		if err == nil && (time.Until(shown)-ahead).Abs() > time.Minute {
			err = errors.New("the clock of this server cannot be moved: it takes no preloaded library")
		}
		return err
	})
}
