//go:build !unix

package process

import "os"

// Stop makes a process stand still, Cont lets it go on. They are nil where there are
// none.
var Stop, Cont os.Signal // there are none
