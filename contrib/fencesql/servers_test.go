//go:build unix

package fencesql_test

import (
	"bytes"
	"database/sql"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

// postgres starts PostgreSQL on a Unix socket. It also returns the data source name.
func postgres(t *testing.T) (db *sql.DB, source string) {
	tests.NeedSeconds(t)
	initdb, postgres := find("initdb"), find("postgres")
	if initdb == "" || postgres == "" {
		t.Skip("no PostgreSQL to start: install postgresql")
	}
	dir, as := home(t, "postgres")
	run(t, as, dir, initdb, "-D", dir+"/data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	serve(t, as, dir, postgres, "-D", dir+"/data", "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	source = "host=" + dir + " user=postgres dbname=postgres"
	return open(t, "pgx", source), source
}

// mariadb starts MariaDB on a Unix socket. parameters are of the data source name.
func mariadb(t *testing.T) (open_ func(parameters string) *sql.DB) {
	tests.NeedSeconds(t)
	install, mariadbd := find("mariadb-install-db"), find("mariadbd")
	if install == "" || mariadbd == "" {
		t.Skip("no MariaDB to start: install mariadb-server")
	}
	dir, as := home(t, "mysql")
	run(t, as, dir, install, "--no-defaults", "--datadir="+dir+"/data", "--skip-test-db", "--auth-root-authentication-method=normal")
	serve(t, as, dir, mariadbd, "--no-defaults", "--datadir="+dir+"/data", "--socket="+dir+"/socket",
		"--pid-file="+dir+"/pid", "--skip-networking", "--skip-grant-tables", "--innodb-flush-log-at-trx-commit=0")
	return func(parameters string) *sql.DB {
		return open(t, "mysql", "root@unix("+dir+"/socket)/mysql"+parameters)
	}
}

// find also looks where Debian and Homebrew keep programs.
func find(program string) string {
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/", "/usr/sbin/", "/opt/homebrew/opt/postgresql*/bin/"} {
		if found, _ := filepath.Glob(pattern + program); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return ""
}

// home returns a new directory and its owner: these servers refuse to run as root.
func home(t *testing.T, name string) (dir string, as *syscall.SysProcAttr) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fencesql") // t.TempDir's may be too long for a socket
	assert.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Getuid() != 0 {
		return dir, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		t.Skip("a server does not run as root: ", err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	assert.Succeed(t, os.Chown(dir, uid, gid))
	return dir, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

func run(t *testing.T, as *syscall.SysProcAttr, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.SysProcAttr = dir, as
	out, err := cmd.CombinedOutput()
	assert.Must(t, err == nil, "%s: %v\n%s", program, err, out)
}

// serve runs a server until the test, or this process, ends: that closes the pipe to the
// shell.
func serve(t *testing.T, as *syscall.SysProcAttr, dir, program string, args ...string) {
	t.Helper()
	const script = `"$@" & cat; kill $!; wait`
	cmd := exec.Command("sh", append([]string{"-c", script, "sh", program}, args...)...)
	cmd.Dir, cmd.SysProcAttr = dir, as
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	pipe := assert.Got(cmd.StdinPipe())(t)
	assert.Succeed(t, cmd.Start())
	t.Cleanup(func() {
		_ = pipe.Close()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s", output.Bytes())
		}
	})
}

// open waits until the server answers.
func open(t *testing.T, driver, source string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, source)
	assert.Succeed(t, err)
	t.Cleanup(func() { _ = db.Close() })
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if err = db.PingContext(t.Context()); err == nil {
			return db
		}
		assert.Must(t, time.Since(start) <= time.Minute, "%v", err)
	}
}
