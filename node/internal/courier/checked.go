package courier

import (
	"bytes"
	"net"
	"syscall"
)

// A checked connection is for go-redis, which allocates as much as a server announces. So it
// gets whole replies only, and none that is too long.
type checked struct {
	net.Conn
	replies parser
	came    bytes.Buffer // what go-redis has not read yet
	whole   int          // of came: replies that are whole
	room    [4 << 10]byte
}

// Checked returns conn for go-redis. It passes on whole replies only, and none that is too long.
func Checked(conn net.Conn) net.Conn { return newChecked(dated(conn)) }

func newChecked(conn net.Conn) net.Conn {
	c := &checked{Conn: conn}
	if raw, ok := conn.(syscall.Conn); ok { // go-redis checks whether it has ended
		return struct {
			*checked
			syscall.Conn
		}{c, raw}
	}
	return c
}

func (c *checked) Read(b []byte) (int, error) {
	for c.whole == 0 {
		n, err := c.Conn.Read(c.room[:])
		c.came.Write(c.room[:n])
		if bad := c.examine(); bad != nil {
			return 0, bad
		}
		if c.whole == 0 && err != nil {
			return 0, err
		}
	}
	n := copy(b, c.came.Next(min(len(b), c.whole)))
	c.whole -= n
	return n, nil
}

// examine looks for the ends of the replies that have come.
func (c *checked) examine() error {
	for c.whole < c.came.Len() {
		c.replies.reset()
		_, n, err := c.replies.parse(c.came.Bytes()[c.whole:])
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		c.whole += n
	}
	if c.came.Len()-c.whole > maxReply {
		return errTooLong
	}
	return nil
}
