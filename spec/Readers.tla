------------------------------ MODULE Readers ------------------------------
(* Lock, with readers: a writer excludes all others, and may go on as a     *)
(* reader.                                                                  *)
EXTENDS Lock

CONSTANT Reading    \* the claims that only read; the others write first

VARIABLES
    reads,          \* of each node and claim: for how long its reader's key is still there; 0: it is not
    mode            \* of each claim: read or write, as its client sees it

everything == <<vars, reads, mode>>

ReadersOn(n) == {c \in Claims : reads[n][c] > 0}

\* Only a reader's acquire finds the name free when others read. Key and left are those of the writer.
WriteAcquire(n, c) ==
    /\ c \notin Reading /\ (ReadersOn(n) = {} \/ ~On("writers wait for readers"))
    /\ Acquire(n, c) /\ UNCHANGED <<reads, mode>>

Votes(n, c) == state[c] = "asking" /\ life[n] >= age[c] + VotesFrom

ReadAcquire(n, c) ==
    /\ Sent(c) /\ mode[c] = "read" /\ (key[n] = Free \/ ~On("readers wait for writers"))
    /\ \E l \in Lives(c) : reads' = [reads EXCEPT ![n][c] = Max(@, l)]
    /\ votes' = IF Votes(n, c) THEN [votes EXCEPT ![c] = @ \cup {n}] ELSE votes
    /\ UNCHANGED <<nodes, state, age, lease, hold, saw, rounds, mode>>

\* The client stops writing before it tells the nodes. A renewal of the writer that is under way goes on.
Downgrade(c) ==
    /\ Valid(c) /\ mode[c] = "write"
    /\ mode' = [mode EXCEPT ![c] = "read"]
    /\ UNCHANGED <<nodes, claims, rounds, reads>>

\* On the node: the writer is a reader for the rest of its life.
ReadFrom(n, c) ==
    /\ c \notin Reading /\ key[n] = c
    /\ mode[c] = "read" \/ (~On("writing ends before the downgrade") /\ state[c] = "held")
    /\ key' = [key EXCEPT ![n] = Free] /\ left' = [left EXCEPT ![n] = 0]
    /\ reads' = [reads EXCEPT ![n][c] = IF On("a downgrade leaves a reader") THEN left[n] ELSE 0]
    /\ UNCHANGED <<life, crashes, claims, rounds, mode>>

\* A renewal that was sent as a writer's counts also after the downgrade: the reader has the rest of the writer's life.
WriteExtend(n, c) == c \notin Reading /\ Extend(n, c) /\ UNCHANGED <<reads, mode>>

ReadExtend(n, c) ==
    /\ state[c] \in {"held", "detached", "kept", "over"} /\ mode[c] = "read"
    /\ reads[n][c] > 0 \/ (~On("a reader's extend needs its own key") /\ key[n] = Free) \* others may read there
    /\ reads' = [reads EXCEPT ![n][c] = IF @ = 0 THEN 0 ELSE Max(@, Length[c] - Pace)]
    /\ \E s \in Of(c) :
       \/ Counts(n, s) /\ kept' = [kept EXCEPT ![s] = @ \cup {n}]
       \/ ~Counts(n, s) /\ UNCHANGED kept
    /\ UNCHANGED <<nodes, claims, began, mode>>

\* It removes the claim as a reader and as the writer.
ReadRelease(n, c) ==
    /\ \/ Release(n, c)
       \/ state[c] = "over" /\ key[n] # c /\ reads[n][c] > 0 /\ UNCHANGED vars
    /\ reads' = [reads EXCEPT ![n] = [d \in Claims |-> IF d = c \/ ~On("a reader leaves the others") THEN 0 ELSE @[d]]]
    /\ UNCHANGED mode

ReadCrash(n) == Crash(n) /\ reads' = [reads EXCEPT ![n] = [c \in Claims |-> 0]] /\ UNCHANGED mode

ReadTick == Tick /\ reads' = [n \in Nodes |-> [c \in Claims |-> Near(reads[n][c])]] /\ UNCHANGED mode

NextReaders ==
    \/ ReadTick
    \/ \E c \in Claims : Downgrade(c) \/ ((Ask(c) \/ Win(c) \/ Begin(c) \/ Confirm(c) \/ Leave(c) \/ Detach(c)) /\ UNCHANGED <<reads, mode>>)
    \/ \E n \in Nodes : ReadCrash(n)
    \/ \E n \in Nodes, c \in Claims :
       WriteAcquire(n, c) \/ ReadAcquire(n, c) \/ ReadFrom(n, c) \/ WriteExtend(n, c) \/ ReadExtend(n, c) \/ ReadRelease(n, c)

InitReaders ==
    /\ Init /\ reads = [n \in Nodes |-> [c \in Claims |-> 0]]
    /\ mode = [c \in Claims |-> IF c \in Reading THEN "read" ELSE "write"]

SpecReaders == InitReaders /\ [][NextReaders]_everything

----------------------------------------------------------------------------
(* What is promised.                                                        *)

Alone(c) == \A d \in Claims \ {c} : ~Valid(d)

\* nobody else has a lease while a writer has one
Shared == \A c \in Claims : Valid(c) /\ mode[c] = "write" => Alone(c)

\* not promised, but for the test that readers do share
NeverShared == \A c \in Claims : Valid(c) => Alone(c)

SymmetryReaders == Permutations(Nodes) \cup Permutations(Reading) \cup Permutations(Claims \ Reading)
=============================================================================
