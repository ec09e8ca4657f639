//go:build !unix

package terminal

// Columns returns the width of the terminal that w writes to, or [Page] if it is unknown.
func Columns(any) int { return Page }
