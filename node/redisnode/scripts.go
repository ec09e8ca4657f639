package redisnode

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
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

	//go:embed acquire_read.lua
	acquireReadLua string
	//go:embed acquire_write.lua
	acquireWriteLua string
	//go:embed release_shared.lua
	releaseSharedLua string
	//go:embed extend_read.lua
	extendReadLua string
	//go:embed acquire_fair.lua
	acquireFairLua string
	//go:embed release_fair.lua
	releaseFairLua string
	//go:embed downgrade.lua
	downgradeLua string
)

// A script is one Lua file, in the two forms in which a server takes it.
type script struct {
	text, sha string
}

var (
	acquireScript       = newScript(acquireLua)
	releaseScript       = newScript(releaseLua)
	extendScript        = newScript(extendLua)
	inspectScript       = newScript(inspectLua)
	breakScript         = newScript(breakLua)
	acquireReadScript   = newScript(acquireReadLua)
	acquireWriteScript  = newScript(acquireWriteLua)
	releaseSharedScript = newScript(releaseSharedLua)
	extendReadScript    = newScript(extendReadLua)
	acquireFairScript   = newScript(acquireFairLua)
	releaseFairScript   = newScript(releaseFairLua)
	downgradeScript     = newScript(downgradeLua)
)

func newScript(text string) script {
	sum := sha1.Sum([]byte(text))
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}
