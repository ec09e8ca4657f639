package redisnode

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"

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

// constantsLua is what the scripts share with Go code. It comes before those that use any
// of it.
var constantsLua = fmt.Sprintf(`local STANDBY, WRITER, READERS, NOT = %q, %q, %q, %q
local WAITS, TOLD, RESERVES = %q, %q, %q
local QUEUE, PLACE, WAITER, HOLD = %q, %q, %q, %q
local MANY, MAX_HOLDS, MAX_TOLD = %d, %d, %d
local VERSION, VERSION_AT = %q, %d
local function process(of) return string.match(of, '^[^:]*') end
`,
	node.StandbySuffix, node.WriteSuffix, node.ReadersNext, node.OthersNext,
	node.PlaceWaits, node.PlaceTold, node.PlaceReserves,
	node.QueuePrefix, node.PlacePrefix, node.WaiterPrefix, node.HoldInfix,
	node.ManyFields, node.MaxHolds, node.MaxTold,
	string(node.UUIDVersion), node.UUIDVersionAt+1) // Lua counts from 1

var (
	acquireScript       = newScript(0, acquireLua)
	releaseScript       = newScript(1, constantsLua+tellLua+raiseLua+releaseLua)
	extendScript        = newScript(2, extendLua)
	inspectScript       = newScript(3, constantsLua+inspectLua)
	breakScript         = newScript(4, constantsLua+tellLua+breakLua)
	acquireReadScript   = newScript(5, constantsLua+acquireReadLua)
	acquireWriteScript  = newScript(6, constantsLua+readersLua+acquireWriteLua)
	releaseSharedScript = newScript(7, constantsLua+readersLua+raiseLua+releaseSharedLua)
	extendReadScript    = newScript(8, extendReadLua)
	acquireFairScript   = newScript(9, constantsLua+tellLua+createLua+acquireFairLua)
	releaseFairScript   = newScript(10, constantsLua+tellLua+raiseLua+releaseFairLua)
	downgradeScript     = newScript(11, constantsLua+downgradeLua)
	acquireAllScript    = newScript(12, createLua+acquireAllLua)
	releaseAllScript    = newScript(13, constantsLua+tellLua+raiseLua+releaseAllLua)
	acquireEachScript   = newScript(14, acquireEachLua)
	releaseEachScript   = newScript(15, constantsLua+tellLua+releaseEachLua)
)

// undeclared tells Dragonfly that a script uses keys that are not among its KEYS: those of
// readers' holds and of others' places. It has to be the first line.
const undeclared = "--!df flags=allow-undeclared-keys\n"

func newScript(i int, text string) script {
	text = undeclared + text
	sum := sha1.Sum([]byte(text))
	return script{text: text, sha: hex.EncodeToString(sum[:]), own: 1 << i}
}
