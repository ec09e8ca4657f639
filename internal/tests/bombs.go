package tests

import "strings"

// NoReplies is how many of Bombs are no replies at all.
const NoReplies = 17

// Bombs returns replies that announce, or are, more than any reply of a Redis server: the
// first NoReplies in their first line.
func Bombs() []string {
	const line = 4 << 10 // the longest
	return []string{
		"*2147483647\r\n:1\r\n", "*9223372036854775807\r\n", "*-5\r\n", "$2147483647\r\nx", "$-2\r\n",
		"%2147483647\r\n+a\r\n",
		"~2147483647\r\n", ">2147483647\r\n", "=2147483647\r\n", "!2147483647\r\n", "|0\r\n|0\r\n",
		"(99999999999999999999\r\n",
		":99999999999999999999\r\n", "*262144\r\n*262144\r\n:1\r\n", strings.Repeat("*1\r\n", 100),
		"-" + strings.Repeat("E", line) + "\r\n",
		"+" + strings.Repeat("x", 2*line), "\r\n", "*3\r\n$9\r\nsubscribe\r\n$-1\r\n:1\r\n", "*1\r\n*-1\r\n", "*0\r\n",
		"*3\r\n$7\r\nmessage\r\n*1\r\n:1\r\n$1\r\na\r\n", "*3\r\n:0\r\n:100\r\n:9223372036854775807\r\n",
	}
}
