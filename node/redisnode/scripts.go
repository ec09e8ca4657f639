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
	//go:embed tell.lua
	tellLua string
	//go:embed raise.lua
	raiseLua string
	//go:embed readers.lua
	readersLua string
	//go:embed create.lua
	createLua string
	//go:embed acquire_all.lua
	acquireAllLua string
	//go:embed release_all.lua
	releaseAllLua string
	//go:embed acquire_each.lua
	acquireEachLua string
	//go:embed release_each.lua
	releaseEachLua string
)

// A script is one Lua file, in the two forms in which a server takes it.
type script struct {
	text, sha string
	own       scriptSet // a set of it alone
}

// A scriptSet holds the scripts that a server was given.
type scriptSet uint32

// add reports whether the script is new in the set.
func (s *scriptSet) add(one *script) bool {
	was := *s
	*s |= one.own
	return was != *s
}

var (
	acquireScript       = newScript(0, acquireLua)
	releaseScript       = newScript(1, tellLua+raiseLua+releaseLua)
	extendScript        = newScript(2, extendLua)
	inspectScript       = newScript(3, inspectLua)
	breakScript         = newScript(4, tellLua+breakLua)
	acquireReadScript   = newScript(5, acquireReadLua)
	acquireWriteScript  = newScript(6, readersLua+acquireWriteLua)
	releaseSharedScript = newScript(7, readersLua+raiseLua+releaseSharedLua)
	extendReadScript    = newScript(8, extendReadLua)
	acquireFairScript   = newScript(9, tellLua+createLua+acquireFairLua)
	releaseFairScript   = newScript(10, tellLua+raiseLua+releaseFairLua)
	downgradeScript     = newScript(11, downgradeLua)
	acquireAllScript    = newScript(12, createLua+acquireAllLua)
	releaseAllScript    = newScript(13, tellLua+raiseLua+releaseAllLua)
	acquireEachScript   = newScript(14, acquireEachLua)
	releaseEachScript   = newScript(15, tellLua+releaseEachLua)
)

// undeclared tells Dragonfly that a script uses keys that are not among its KEYS: those of
// readers' holds and of others' places. It has to be the first line.
const undeclared = "--!df flags=allow-undeclared-keys\n"

func newScript(i int, text string) script {
	text = undeclared + text
	sum := sha1.Sum([]byte(text))
	return script{text: text, sha: hex.EncodeToString(sum[:]), own: 1 << i}
}
