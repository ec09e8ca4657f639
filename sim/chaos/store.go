package chaos

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim"
)

// The clients add elements to a set that the locks protect, in a store that has no locks
// of its own, as the tests of etcd by Jepsen do: a holder reads the set, and later writes
// it back with one more element. If two hold a lock at the same time, one of them writes
// over what the other has added. There is a set that refuses old tokens, and one that
// knows no tokens.

// A Set is what became of the elements.
type Set struct {
	Fenced  bool `json:"fenced"`
	Added   int  `json:"added"`   // writes that the store has accepted, with one more element each
	Refused int  `json:"refused"` // because their token was old
	Lost    int  `json:"lost"`    // elements that were added, and are not there in the end
}

// A store keeps the sets.
type store struct {
	listener net.Listener
	tasks    sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	kept  map[shelf]*kept
}

// A shelf is where a set is.
type shelf struct {
	Name   string `json:"name"`
	Fenced bool   `json:"fenced"`
}

type kept struct {
	elements []int
	added    []int
	refused  int
	token    node.Token
}

// A visit is a request to the store. Without an element it reads.
type visit struct {
	shelf
	Token    node.Token `json:"token"`
	Element  int        `json:"element,omitempty"`
	Elements []int      `json:"elements,omitempty"` // the whole set
}

type receipt struct {
	Elements []int `json:"elements"`
	Refused  bool  `json:"refused"`
}

func newStore() (*store, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &store{listener: l, kept: make(map[shelf]*kept), conns: make(map[net.Conn]bool)}
	s.tasks.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[conn] = true
			s.mu.Unlock()
			s.tasks.Go(func() { s.serve(conn) })
		}
	})
	return s, nil
}

func (s *store) addr() string { return s.listener.Addr().String() }

func (s *store) close() {
	s.listener.Close()
	s.mu.Lock()
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.tasks.Wait()
}

func (s *store) serve(conn net.Conn) {
	defer conn.Close()
	from, to := json.NewDecoder(conn), json.NewEncoder(conn)
	for {
		var v visit
		if from.Decode(&v) != nil || to.Encode(s.take(&v)) != nil {
			return
		}
	}
}

// take answers a visit.
func (s *store) take(v *visit) (r receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kept[v.shelf]
	if k == nil {
		k = new(kept)
		s.kept[v.shelf] = k
	}
	if v.Fenced && v.Token < k.token {
		k.refused++
		return receipt{Refused: true}
	}
	k.token = max(k.token, v.Token)
	if v.Element != 0 {
		k.elements = append(slices.Clone(v.Elements), v.Element)
		k.added = append(k.added, v.Element)
	}
	return receipt{Elements: k.elements}
}

// sets counts what was lost, in the fenced set first.
func (s *store) sets() (all []Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fenced := range []bool{true, false} {
		sum := Set{Fenced: fenced}
		for at, k := range s.kept {
			if at.Fenced != fenced {
				continue
			}
			there := make(map[int]bool)
			for _, e := range k.elements {
				there[e] = true
			}
			for _, e := range k.added {
				if !there[e] {
					sum.Lost++
				}
			}
			sum.Added += len(k.added)
			sum.Refused += k.refused
		}
		all = append(all, sum)
	}
	return all
}

// A setClient adds elements for one client: it reads the sets of a name when the client
// gets the lock or reads under it, and writes them when the client writes.
type setClient struct {
	first, n int // of its elements, and how many it has used

	mu   sync.Mutex
	conn net.Conn
	from *json.Decoder
	to   *json.Encoder
	read map[string][2][]int // by owner and name: what it has read, fenced and not
}

func newSetClient(addr string, client, start int) *setClient {
	c := &setClient{first: (client+1)*1_000_000_000 + start*10_000_000, read: make(map[string][2][]int)}
	if conn, err := net.Dial("tcp", addr); err == nil {
		c.conn, c.from, c.to = conn, json.NewDecoder(conn), json.NewEncoder(conn)
	}
	return c
}

// sees does what an entry of the client means for the sets.
func (c *setClient) sees(e *sim.Entry) {
	if c.conn == nil || e.Mode == "read" || e.Kind != sim.KindAccess {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	what := fmt.Sprint(e.Owner, " ", e.Name)
	read, known := c.read[what]
	writes := e.Text == "writes"
	if writes && !known { // it has not read since
		return
	}
	if writes {
		c.n++
		delete(c.read, what)
	}
	for i := range read {
		v := visit{shelf: shelf{e.Name, i == 0}, Token: e.Token}
		if writes && read[i] == nil { // its reading was refused
			continue
		}
		if writes {
			v.Element, v.Elements = c.first+c.n, read[i]
		}
		var r receipt
		if c.to.Encode(v) != nil || c.from.Decode(&r) != nil {
			return
		}
		if read[i] = nil; !r.Refused {
			read[i] = append([]int{}, r.Elements...)
		}
	}
	if !writes {
		c.read[what] = read
	}
}
