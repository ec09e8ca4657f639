package redisnode

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"

	"github.com/redquorum/redquorum/node"
)

var (
	//go:embed acquire.lua
	acquireLua string
	//go:embed release.lua
	releaseLua string
	//go:embed extend.lua
	extendLua string
	//go:embed inspect.lua
	inspectLua string
	//go:embed break.lua
	breakLua string
)

// A script is one Lua file, in the two forms in which a server takes it.
type script struct {
	text, sha string
}

// scripts is indexed by node.Kind.
var scripts = [...]script{
	node.Acquire: newScript(acquireLua),
	node.Release: newScript(releaseLua),
	node.Extend:  newScript(extendLua),
	node.Inspect: newScript(inspectLua),
	node.Break:   newScript(breakLua),
}

func newScript(text string) script {
	sum := sha1.Sum([]byte(text))
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}
