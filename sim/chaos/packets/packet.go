package packets

import "encoding/binary"

// A packet is one of TCP over IPv4.
type packet []byte

// Offsets in the header of IP, and in that of TCP after it.
const (
	protocolAt = 9
	sourceAt   = 12
	targetAt   = 16
	portsAt    = 0
	flagsAt    = 13
)

// parse returns the packet that comes first in b. ok is false if it is none of TCP.
func parse(b []byte) (p packet, ok bool) {
	const least, tcp = 20, 6 // both headers have 20 bytes or more
	if len(b) < least || b[0]>>4 != 4 || b[protocolAt] != tcp {
		return nil, false
	}
	p = b
	return p, p.header() >= least && len(p) >= p.header()+least
}

// header returns the length of the header of IP.
func (p packet) header() int { return int(p[0]&15) * 4 }

// from and to are the ports.
func (p packet) from() uint16 { return binary.BigEndian.Uint16(p[p.header()+portsAt:]) }
func (p packet) to() uint16   { return binary.BigEndian.Uint16(p[p.header()+portsAt+2:]) }

// opens reports whether a client opens a connection with it.
func (p packet) opens() bool {
	const syn, ack = 1 << 1, 1 << 4
	return p[p.header()+flagsAt]&(syn|ack) == syn
}

// turn exchanges the addresses. The checksums of IP and TCP stay right: they are sums.
func (p packet) turn() {
	for i := range targetAt - sourceAt {
		p[sourceAt+i], p[targetAt+i] = p[targetAt+i], p[sourceAt+i]
	}
}
