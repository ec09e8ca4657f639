//go:build unix

package terminal

import "golang.org/x/sys/unix"

// Columns returns how wide the terminal is that w writes to; [Page] if that is not known.
func Columns(w any) int {
	if f := file(w); f != nil {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 1 {
			return int(size.Col)
		}
	}
	return Page
}
