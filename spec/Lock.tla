-------------------------------- MODULE Lock --------------------------------
(* Mutual exclusion: when a client may think that it holds a name.          *)
(* README.md explains every variable and action without TLA+.               *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Nodes, Claims,
    Offer,        \* the claims that wait for a hand-over
    Rounds,         \* how many rounds of one claim are under way at most, as a set
    Length,         \* of each claim: how long its lease is
    MaxLease,       \* what the restart guard reckons with
    Window,         \* W: how long after its start an attempt may be decided
    MinHold,        \* how long a name stays taken at least; 0: no minimum
    Drift, Pace,    \* the allowance for clocks, and by how much they do differ
    Crashes,        \* how many there may be
    Resumes,        \* whether leases are detached and resumed
    Others,         \* whether all other clients are there, too
    Off             \* the protections that are switched off

On(protection) == protection \notin Off

VARIABLES
    key, left,      \* of each node: whose key it has, and for how long
    life,           \* of each node: how long ago its life began
    crashes,
    state,          \* of each claim: none, asking, held, detached, kept or over
    age,            \* of each claim that asks: how long ago it began
    votes,          \* of each claim that asks: the nodes that count
    lease,          \* of each claim: how long it is still valid; 0: it is not
    hold,           \* of each claim: how long its name must still be taken
    began, kept     \* of each round: how long ago it began, or None; the nodes that count

nodes  == <<key, left, life, crashes>>
claims == <<state, age, votes, lease, hold>>
rounds == <<began, kept>>
vars   == <<nodes, claims, rounds>>

None  == -1
Free  == "free"
Other == "other"

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Longest == Max(MaxLease, Max(MinHold, 0))
Old     == 2 * Longest + 2 * Drift + Pace + 1   \* older than anything that is compared with it

Quorum == IF On("majority") THEN Cardinality(Nodes) \div 2 + 1 ELSE Cardinality(Nodes) \div 2

Slots == Claims \X Rounds
Of(c) == {s \in Slots : s[1] = c}

Init ==
    /\ key = [n \in Nodes |-> Free] /\ left = [n \in Nodes |-> 0]
    /\ life = [n \in Nodes |-> Old] /\ crashes = 0
    /\ state = [c \in Claims |-> "none"] /\ age = [c \in Claims |-> 0] /\ votes = [c \in Claims |-> {}]
    /\ lease = [c \in Claims |-> 0] /\ hold = [c \in Claims |-> 0]
    /\ began = [s \in Slots |-> None] /\ kept = [s \in Slots |-> {}]

----------------------------------------------------------------------------
(* How long things last. A node's clock may be faster than a client's.      *)

\* a lease, or the minimum hold if that is longer; the client allows for drift
Lives(c) == LET l == IF MinHold > 0 THEN Max(Length[c], MinHold + IF On("drift of the minimum hold") THEN Drift ELSE 0)
                                    ELSE Length[c]
                t == IF On("keys outlive leases") THEN l ELSE l - 1
            IN (t - Pace)..t

\* a key that was handed over lasts for the rest of its place, which was made after the attempt began
Spans(c) == IF c \in Offer /\ state[c] = "asking" THEN Max(1, Length[c] - Pace - age[c])..Length[c] ELSE Lives(c)

Allowed(len) == len - (IF On("drift") THEN Drift ELSE 0)

\* from this age on a node votes again; from that age on it counts for renewals
VotesFrom == IF On("restart guard") THEN MaxLease + Drift ELSE 0
KeepsFrom == IF On("young nodes keep no lease")
             THEN Window + (IF On("drift of the window") THEN Drift ELSE 0) ELSE 0

----------------------------------------------------------------------------
(* What a client does.                                                      *)

\* A new attempt, or a place in the wait queue. From now on acquires are under way.
Ask(c) ==
    /\ state[c] = "none"
    /\ state' = [state EXCEPT ![c] = "asking"]
    /\ UNCHANGED <<nodes, age, votes, lease, hold, rounds>>

\* Enough nodes have granted it, or handed it over.
Win(c) ==
    /\ state[c] = "asking" /\ Cardinality(votes[c]) >= Quorum
    /\ On(IF c \in Offer THEN "hand-over within the window" ELSE "decide within the window") => age[c] < Window
    /\ LET since == IF On(IF c \in Offer THEN "hand-over counts from its attempt" ELSE "valid from the start") THEN age[c] ELSE 0 IN
       /\ since < Allowed(Length[c])
       /\ lease' = [lease EXCEPT ![c] = Allowed(Length[c]) - since]
    /\ hold' = [hold EXCEPT ![c] = Max(0, MinHold - age[c])]
    /\ state' = [state EXCEPT ![c] = "held"]
    /\ age' = [age EXCEPT ![c] = 0] /\ votes' = [votes EXCEPT ![c] = {}]
    /\ UNCHANGED <<nodes, rounds>>

Valid(c) == state[c] = "held" /\ lease[c] > 0

\* A round of extends: a renewal, or of a detached lease an attempt to resume it.
Begin(c) ==
    /\ Valid(c) \/ state[c] = "detached"
    /\ \E s \in Of(c) : began' = [began EXCEPT ![s] = 0] /\ kept' = [kept EXCEPT ![s] = {}]
    /\ UNCHANGED <<nodes, claims>>

Confirm(c) ==
    /\ \E s \in Of(c) :
        /\ began[s] # None
        /\ Cardinality(kept[s]) >= (IF On("renewal by a majority") THEN Quorum ELSE Quorum - 1)
        /\ IF state[c] = "detached"
           THEN /\ began[s] < Allowed(Length[c]) /\ (On("resume within the window") => began[s] < Window)
           ELSE state[c] = "held" /\ (On("renewal in time") => lease[c] > 0)
        /\ lease' = [lease EXCEPT ![c] = Max(@, Allowed(Length[c]) - IF On("renewed from the start") THEN began[s] ELSE 0)]
    /\ state' = [state EXCEPT ![c] = "held"]
    /\ UNCHANGED <<nodes, age, votes, hold, rounds>>

\* Nothing more comes of its rounds.
NoRounds(c) ==
    /\ began' = [s \in Slots |-> IF s \in Of(c) THEN None ELSE began[s]]
    /\ kept' = [s \in Slots |-> IF s \in Of(c) THEN {} ELSE kept[s]]

\* An unlock, or an attempt that fails. From now on releases are under way, unless the name is to stay taken.
Leave(c) ==
    /\ state[c] \in {"asking", "held"}
    /\ state' = [state EXCEPT ![c] = IF hold[c] > 0 /\ On("no release within the minimum hold") THEN "kept" ELSE "over"]
    /\ lease' = [lease EXCEPT ![c] = 0] /\ age' = [age EXCEPT ![c] = 0] /\ votes' = [votes EXCEPT ![c] = {}]
    /\ NoRounds(c) /\ UNCHANGED <<nodes, hold>>

Detach(c) ==
    /\ Resumes /\ state[c] = "held"
    /\ state' = [state EXCEPT ![c] = "detached"] /\ lease' = [lease EXCEPT ![c] = 0]
    /\ NoRounds(c) /\ UNCHANGED <<nodes, age, votes, hold>>

----------------------------------------------------------------------------
(* What a node does with a command. It may come late, again, or never.      *)

Sent(c) == state[c] # "none"

\* An acquire: of the attempt, or to heal a node that has lost the key. A hand-over has the same effect.
Acquire(n, c) ==
    /\ Sent(c) /\ (key[n] = Free \/ (~On("grant only what is free") /\ key[n] # c))
    /\ key' = [key EXCEPT ![n] = c]
    /\ \E l \in Spans(c) : left' = [left EXCEPT ![n] = l]
    /\ votes' = IF state[c] = "asking" /\ (life[n] >= age[c] + VotesFrom \/ (c \in Offer /\ ~On("restart guard of hand-overs")))
                THEN [votes EXCEPT ![c] = @ \cup {n}] ELSE votes
    /\ UNCHANGED <<life, crashes, state, age, lease, hold, rounds>>

\* Whether a round counts the node: those that ask to resume count only nodes that also vote.
MayKeep(n, s) ==
    /\ life[n] >= began[s] + KeepsFrom
    /\ (state[s[1]] = "detached" /\ On("restart guard of resume")) => life[n] >= began[s] + VotesFrom

Counts(n, s) == began[s] # None /\ MayKeep(n, s)

\* An extend, for each of the rounds at once: an answer may also be lost.
Extend(n, c) ==
    /\ state[c] \in {"held", "detached", "kept", "over"}
    /\ \/ key[n] = c
       \/ ~On("extend looks at the owner") /\ key[n] # Free
       \/ ~On("extend needs the key") /\ key[n] = Free
    /\ left' = IF key[n] = Free THEN left ELSE
               [left EXCEPT ![n] = IF On("extend shortens nothing") THEN Max(@, Length[c] - Pace) ELSE 1]
    /\ \E s \in Of(c) :
       \/ Counts(n, s) /\ kept' = [kept EXCEPT ![s] = @ \cup {n}]
       \/ ~Counts(n, s) /\ UNCHANGED kept
    /\ UNCHANGED <<key, life, crashes, claims, began>>

Release(n, c) ==
    /\ state[c] = "over" /\ key[n] = c
    /\ key' = [key EXCEPT ![n] = Free] /\ left' = [left EXCEPT ![n] = 0]
    /\ UNCHANGED <<life, crashes, claims, rounds>>

\* All other clients: they have the name on a node, or have it no more. If all attempts of a client
\* had one owner name, or a release did not look at it, a late release would take away another's key.
Interfere(n) ==
    /\ Others
    /\ \/ key[n] = Free /\ key' = [key EXCEPT ![n] = Other]
       \/ key[n] = Other /\ key' = [key EXCEPT ![n] = Free]
       \/ {"a name for each attempt", "release looks at the owner"} \cap Off # {} /\ key[n] \in Claims /\ key' = [key EXCEPT ![n] = Free]
    /\ left' = [left EXCEPT ![n] = 0]
    /\ UNCHANGED <<life, crashes, claims, rounds>>

\* A restart that forgets everything. By another clock it may be longer ago.
Crash(n) ==
    /\ crashes < Crashes /\ crashes' = crashes + 1
    /\ key' = [key EXCEPT ![n] = Free] /\ left' = [left EXCEPT ![n] = 0]
    /\ \E d \in 0..Pace : life' = [life EXCEPT ![n] = d]
    /\ UNCHANGED <<claims, rounds>>

----------------------------------------------------------------------------
(* Time passes, for all at once.                                            *)

Near(x) == Max(x - 1, 0)

Tick ==
    LET ends(c) == \/ state[c] = "asking" /\ age[c] + 1 >= Allowed(Length[c]) \* it cannot be won any more
                   \/ state[c] = "held" /\ lease[c] <= 1 /\ On("local timer") /\ On("renewal in time")
        after(c) == IF ends(c) THEN (IF hold[c] > 1 THEN "kept" ELSE "over")
                    ELSE IF state[c] = "kept" /\ hold[c] <= 1 THEN "over" ELSE state[c]
        late(s) == began[s] = None \/ ends(s[1]) \/ began[s] + 1 >= Allowed(Length[s[1]])
    IN
    /\ key' = [n \in Nodes |-> IF left[n] > 1 \/ key[n] = Other THEN key[n] ELSE Free]
    /\ left' = [n \in Nodes |-> Near(left[n])]
    /\ life' = [n \in Nodes |-> Min(life[n] + 1, Old)]
    /\ state' = [c \in Claims |-> after(c)]
    /\ age' = [c \in Claims |-> IF after(c) = "asking" THEN age[c] + 1 ELSE 0]
    /\ votes' = [c \in Claims |-> IF after(c) = "asking" THEN votes[c] ELSE {}]
    /\ lease' = [c \in Claims |-> IF On("local timer") THEN Near(lease[c]) ELSE lease[c]]
    /\ hold' = [c \in Claims |-> Near(hold[c])]
    /\ began' = [s \in Slots |-> IF late(s) THEN None ELSE began[s] + 1]
    /\ kept' = [s \in Slots |-> IF late(s) THEN {} ELSE kept[s]]
    /\ UNCHANGED crashes

Next ==
    \/ Tick
    \/ \E c \in Claims : Ask(c) \/ Win(c) \/ Begin(c) \/ Confirm(c) \/ Leave(c) \/ Detach(c)
    \/ \E n \in Nodes : Crash(n) \/ Interfere(n)
    \/ \E n \in Nodes, c \in Claims : Acquire(n, c) \/ Extend(n, c) \/ Release(n, c)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* What is promised.                                                        *)

\* the name is the claim's, or is to stay taken for it
Taken(c) == Valid(c) \/ hold[c] > 0

Exclusive == \A c \in Claims : Valid(c) => \A d \in Claims \ {c} : ~Taken(d)

\* a lease that is over does not come back, unless it is resumed
Ends == [][\A c \in Claims : state[c] = "held" /\ lease[c] = 0 => lease'[c] = 0]_vars

\* Nodes can be exchanged for one another, and claims of one kind, too.
Alike == {c \in Claims : c \notin Offer /\ \A d \in Claims : Length[c] = Length[d]}
Symmetry == Permutations(Nodes) \cup Permutations(Alike)
=============================================================================
