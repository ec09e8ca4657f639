package resp

import (
	"bytes"
	"net"
	"syscall"
)

// A bounded connection is for go-redis, which allocates as much as a server announces: it
// gets complete replies only, and none that is too long.
type bounded struct {
	net.Conn
	replies Parser
	came    bytes.Buffer // what go-redis has not read yet
	whole   int          // of came: replies that are whole
	room    [4 << 10]byte
}

// Bounded returns conn for a client that trusts what a server announces, such as
// go-redis. It passes on complete replies only. One of more than most bytes, or what is
// no reply, ends the reading with ErrProtocol.
func Bounded(conn net.Conn, most int) net.Conn {
	c := &bounded{Conn: conn, replies: Parser{Most: most}}
	if raw, ok := conn.(syscall.Conn); ok { // go-redis checks whether it has ended
		return struct {
			*bounded
			syscall.Conn
		}{c, raw}
	}
	return c
}

func (c *bounded) Read(b []byte) (int, error) {
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

func (c *bounded) examine() error {
	for c.whole < c.came.Len() {
		c.replies.Reset()
		_, n, err := c.replies.Parse(c.came.Bytes()[c.whole:])
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		c.whole += n
	}
	if c.came.Len()-c.whole > c.replies.Most {
		return ErrTooLong
	}
	return nil
}
