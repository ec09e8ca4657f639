//go:build unix

package terminal

import "golang.org/x/sys/unix"

// Columns returns the width of the terminal that w writes to, or [Page] if it is unknown.
func Columns(w any) int {
	if f := file(w); f != nil {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 1 {
			return int(size.Col)
		}
	}
	return Page
}
