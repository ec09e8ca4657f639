package node

import "errors"

// Reasons for no answer. Match a Reply's Err with errors.Is; its text adds what the
// server or the network said.
var (
	// ErrTimeout: the deadline passed without an answer.
	ErrTimeout = errors.New("no answer in time")
	// ErrUnreachable: there is no connection to the server.
	ErrUnreachable = errors.New("unreachable")
	// ErrOverloaded: the node's queue is full, because the server takes
	// commands more slowly than they come.
	ErrOverloaded = errors.New("too many commands are waiting for this node")
	// ErrClosed: the node was closed.
	ErrClosed = errors.New("node is closed")

	// ErrLoading: the server is loading its data after a start.
	ErrLoading = errors.New("server is still loading its data")
	// ErrBusy: the server is running a long script.
	ErrBusy = errors.New("server is busy running a script")
	// ErrReadOnly: the server is a replica. A lock needs independent masters.
	ErrReadOnly = errors.New("server is a replica, not a master")
	// ErrUnreplicated: the server is a primary, and not enough of its replicas are known
	// to have it.
	ErrUnreplicated = errors.New("not replicated")
	// ErrMisconf: the server refuses writes because it cannot persist.
	ErrMisconf = errors.New("server refuses writes because it cannot save to disk")
	// ErrOutOfMemory: the server has reached maxmemory.
	ErrOutOfMemory = errors.New("server is out of memory")
	// ErrServer: the server answered with an error that is none of the others.
	ErrServer = errors.New("server error")

	// ErrWrongType: the key at the lock's name is neither a lock nor a string, which is
	// another library's lock, or another key of the lock has the wrong type.
	ErrWrongType = errors.New("the key at this name is not a lock")
	// ErrAuth: the server rejected the credentials or the client's certificate, or they
	// do not allow the commands that a lock needs.
	ErrAuth = errors.New("not permitted by the server")
	// ErrCertificate: the server's TLS certificate does not verify.
	ErrCertificate = errors.New("the server's certificate cannot be trusted")
	// ErrUnsupported: the server lacks something that a lock needs, is configured
	// otherwise than the program expects, or cannot have a lock of these names.
	ErrUnsupported = errors.New("not supported by the server")
)

// Permanent reports whether trying again cannot help: somebody has to change a key, a
// name, a password, a certificate or a server. An error that is also ErrUnreachable may
// go away: the next connection may have other credentials.
func Permanent(err error) bool {
	if errors.Is(err, ErrUnreachable) {
		return false
	}
	return errors.Is(err, ErrWrongType) || errors.Is(err, ErrAuth) || errors.Is(err, ErrCertificate) ||
		errors.Is(err, ErrUnsupported) ||
		errors.Is(err, ErrClosed)
}
