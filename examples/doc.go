// Package examples has small programs, each in a folder of its own. None needs a server:
//
//	go run ./examples/jobrunner   three hosts start a job at about the same time; one runs it
//	go run ./examples/leader      three hosts elect a leader, which resigns after a while
//	go run ./examples/cache       readers share a cache; a writer has it alone
//	go run ./examples/bank        transfers lock two accounts as one
//	go run ./examples/fenced      a paused holder's late write is refused by its token
//	go run ./examples/payment     each order is charged once, though the sender of the outbox crashes
//	go run ./examples/service     an HTTP service: what it answers when it gets no lock, and how it ends
//	go run ./examples/owners      processes own keys, take them over, and are found by their notes
//	go run ./examples/once        one caller computes a result, and the others wait for it
//	go run ./examples/simulated   the simulator finds that a program writes without its token
package examples
