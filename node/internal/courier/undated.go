package courier

import (
	"cmp"
	"io"
	"net"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
)

// An undated connection has no deadlines, as those of an SSH tunnel. Its user has one end
// of a pipe, which does, and two goroutines carry everything between the other end and
// the connection. So a Read or Write ends in time even if the connection's never does,
// not even by its Close: an SSH client whose network is dead.
type undated struct {
	net.Conn // the end of the pipe
	far      net.Conn
	behind   net.Conn
	closing  sync.Once
	ended    chan struct{} // no more can be read, because of why, or nil for io.EOF
	why      error
}

func dated(conn net.Conn) net.Conn {
	if conn.SetDeadline(time.Time{}) == nil {
		return conn
	}
	near, far := net.Pipe()
	u := &undated{Conn: near, far: far, behind: conn, ended: make(chan struct{})}
	go u.send()
	go u.receive()
	return u
}

// Checked returns conn for go-redis, with deadlines: see resp.Bounded.
func Checked(conn net.Conn) net.Conn { return resp.Bounded(dated(conn), resp.MaxReply) }

func (u *undated) send() {
	_, _ = io.Copy(u.behind, u.far)
	_, _ = io.Copy(io.Discard, u.far) // the other side may have said why it reads no more
}

func (u *undated) receive() {
	_, u.why = io.Copy(u.far, u.behind)
	close(u.ended)
	u.far.Close()
}

func (u *undated) Read(b []byte) (int, error) {
	n, err := u.Conn.Read(b)
	return n, u.reason(err)
}

func (u *undated) Write(b []byte) (int, error) {
	n, err := u.Conn.Write(b)
	return n, u.reason(err)
}

// reason is why a Read or Write has failed: the pipe's error, or what has ended the
// connection.
func (u *undated) reason(err error) error {
	if err != io.EOF && err != io.ErrClosedPipe {
		return err
	}
	select {
	case <-u.ended:
		return cmp.Or(u.why, io.EOF)
	default:
		return err
	}
}

// Close does not wait for that of the connection, which may need the network.
func (u *undated) Close() error {
	u.closing.Do(func() { go u.behind.Close() })
	return u.Conn.Close()
}
