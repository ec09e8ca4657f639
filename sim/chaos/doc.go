// Package chaos carries out the plans of package faults on real processes: a redis-server
// or valkey-server for each node, a process of this program for each client, and a proxy
// on each link between them. It judges the run as package sim does, from what all
// processes write.
//
//	outcome, err := chaos.Run(ctx, plan, chaos.Config{Self: []string{os.Args[0], "client"}, Dir: dir})
//
// The command redquorum chaos is made of it.
//
// # How a fault is carried out
//
//	cut           the proxy drops what comes. TCP has no gaps, so a connection that has lost
//	              something is silent from then on, and is reset when the cut ends
//	delay         the proxy keeps messages for that long
//	loss          by a draw the message is late by 200 ms or more, as TCP sends it again, or the
//	              connection is reset
//	duplicate     the proxy sends the command once more, over a connection of its own. Replies do not
//	              come twice: the part of a plan that asks for that has no effect
//	reorder, hold the proxy lets later commands pass. It keeps their replies until the earlier ones
//	              have come, as the client takes replies in the order of its commands
//	reset         the proxy closes the connections
//	halfopen      the proxy drops what comes over the connections that there are, until the fault ends
//	deafen        the proxy drops what comes over subscriptions
//	crash         SIGKILL. durable: the server has an append-only file, and the death of a
//	              process loses nothing of it; second: with what was in its append-only file at the latest full second of the
//	              plan, and a part of a command at its end; empty: with nothing; replica: a replica that has run all the time takes
//	              over, and has what its master had at the latest full second
//	demote        REPLICAOF: an address at which there is nothing (durable), another server with the
//	              data of the latest full second, an empty server, or the other node
//	promote       REPLICAOF NO ONE
//	slow          the proxies of the node pass one command on at a time, each that late
//	block         a script that uses the processor for that long
//	starve        SIGSTOP and SIGCONT, in each slice of 100 ms, which is stretched as all times are
//	full          memory: maxmemory 1; disk: the kernel refuses to let the server's append-only file
//	              grow (RLIMIT_FSIZE), on Linux
//	evict, flush  a script deletes all locks; FLUSHALL
//	scriptflush   SCRIPT FLUSH
//	alias         the nodes are databases of one server
//	pause         SIGSTOP and SIGCONT
//	suspend       the same; the time of day of a server is set back by that time afterwards
//	kill, start   SIGKILL and a new process
//	skew, step, rate, strobe   a client's clock is our own. A server has a clock preloaded that is
//	              compiled by cc, on Linux
//	view, clone   a client's list of nodes, and its random numbers
//
// The machine does not sleep when a plan suspends a process: a timer of the kernel goes
// on. For the clients of package quorum that makes no difference, because their clock
// counts suspended time.
//
// [Able] refuses what is not here: the clocks and disks of servers elsewhere, plans with
// a mistake, and the steps detach, handle, resume and break, and those shares of the
// drawn work. [Reduce] leaves these shares out.
//
// # Time
//
// True time is the machine's clock that counts suspensions, which all processes read. A
// process is late by a millisecond, or by more on a busy machine, and the times of many
// plans are exact to a millisecond. [Config].Stretch makes everything in a plan take
// longer. Timeouts that are not in the plan, such as those of TCP, stay the same.
//
// # The judge
//
// It is the one of package sim/live, with a [Slack] for what is observed late. It checks
// I1, I4, I5, I6, I7, I8, I13, I14, and I16 by what the proxies see of commands and
// answers. The keys on the nodes are sampled after each reply, and so only shown. Of
// textbook Redlock it checks I1, I5, I6 and I7, and of any other [live.Lock] what that
// promises.
//
// [OnServers] plays clients on servers that are there already, without faults. Package
// live writes what clients did as a history for other judges. An example of one is
// sim/chaos/judge.
//
// # What may change
//
// The Go API of this package may change in any release.
package chaos
