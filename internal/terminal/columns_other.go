//go:build !unix

package terminal

// Columns returns how wide the terminal is that w writes to, where that is known; else
// [Page].
func Columns(any) int { return Page }
