------------------------------ MODULE Replicas ------------------------------
(* One node that is a primary with replicas: whatever these do, what the     *)
(* node has said yes to excludes a yes for another claim. README.md explains *)
(* every variable and action without TLA+.                                   *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Servers, Claims,
    MaxLease,       \* how long each lease is
    Window,         \* W: how long after its start an attempt may be decided
    Crashes,        \* how many there may be
    Others,         \* whether the lock has other nodes, too
    Off             \* the protections that are switched off

On(protection) == protection \notin Off

VARIABLES
    follows,        \* of each server: which one it follows; itself if it is a primary
    since,          \* of each server: for how long it has done so
    key, left,      \* of each server: whose key it has, and for how long
    crashes,
    round,          \* of each claim: the round that is under way
    says            \* of each claim: for how long it is still valid by what the node has said

servers == <<follows, since, key, left, crashes>>
vars    == <<servers, round, says>>

Free    == "free"
Sent    == "sent"                           \* a round whose command no server has executed for it
Yes     == "yes"                            \* a round that the node has said yes to
NoRound == [votes |-> FALSE, age |-> 0, at |-> "none", acks |-> {}]
Old     == MaxLease + Window - 1              \* older than anything that is compared with it

Max(a, b) == IF a > b THEN a ELSE b
Primary(s) == follows[s] = s
Followers(s) == {f \in Servers : follows[f] = s /\ f # s}

Init ==
    /\ \E p \in Servers : follows = [s \in Servers |-> p]
    /\ since = [s \in Servers |-> Old] /\ crashes = 0
    /\ key = [s \in Servers |-> Free] /\ left = [s \in Servers |-> 0]
    /\ round = [c \in Claims |-> NoRound] /\ says = [c \in Claims |-> 0]

----------------------------------------------------------------------------
(* When the node says yes.                                                  *)

Replicas == Cardinality(Servers) - 1
Need == (Replicas + 1) \div 2               \* with the primary they are a majority

\* whether so many replicas are enough for what is executed on s
Enough(s, acks) ==
    IF On("a majority has it") THEN (IF On("each replica once") THEN 1 ELSE 2) * Cardinality(acks) >= Need
    ELSE acks # {} \/ Followers(s) = {}     \* Redisson: one of those that are connected

Settled(r) ==
    IF Enough(r.at, r.acks) \/ (~r.votes /\ ~On("renewals wait, too"))
    THEN [r EXCEPT !.at = Yes, !.acks = {}] ELSE r

\* The restart guard: how long a server must have been a primary, when the round began.
OldPrimary(s, r) == since[s] >= r.age + (IF r.votes THEN MaxLease ELSE Window)

\* How long a replica must have followed, unless all are needed.
OldFollower(f, r) == Need < Replicas =>
    IF r.votes THEN On("old followers") => since[f] >= r.age + MaxLease
    ELSE On("young followers keep no lease") => since[f] >= r.age + Window

\* what may become of a claim's round when s executes a command for it
After(s, r, votes) ==
    {r} \cup (IF r.at = Sent /\ r.votes = votes /\ OldPrimary(s, r) THEN {Settled([r EXCEPT !.at = s])} ELSE {})

----------------------------------------------------------------------------
(* What clients do.                                                         *)

\* By what this node has said, or others, which is possible as long as no other claim is valid here.
Valid(c) == says[c] > 0 \/ (Others /\ \A d \in Claims \ {c} : says[d] = 0)

Begin(c, votes) ==
    /\ IF votes THEN says[c] = 0 ELSE Valid(c)
    /\ round' = [round EXCEPT ![c] = [NoRound EXCEPT !.votes = votes, !.at = Sent]]
    /\ UNCHANGED <<servers, says>>

\* An attempt is won, or a renewal confirmed.
Count(c) ==
    /\ round[c].at = Yes /\ (round[c].votes \/ Valid(c))
    /\ says' = [says EXCEPT ![c] = Max(@, MaxLease - round[c].age)]
    /\ round' = [round EXCEPT ![c] = NoRound] /\ UNCHANGED servers

----------------------------------------------------------------------------
(* What primaries do with commands. These may come late, again, or never,   *)
(* and to any server that is a primary.                                     *)

\* also to heal: then it is part of no round
Acquire(s, c) ==
    /\ Primary(s) /\ key[s] = Free
    /\ key' = [key EXCEPT ![s] = c] /\ left' = [left EXCEPT ![s] = MaxLease]
    /\ \E r \in After(s, round[c], TRUE) : round' = [round EXCEPT ![c] = r]
    /\ UNCHANGED <<follows, since, crashes, says>>

Extend(s, c) ==
    /\ Primary(s) /\ key[s] = c
    /\ left' = [left EXCEPT ![s] = MaxLease]
    /\ \E r \in After(s, round[c], FALSE) : round' = [round EXCEPT ![c] = r]
    /\ UNCHANGED <<follows, since, key, crashes, says>>

----------------------------------------------------------------------------
(* What servers do.                                                         *)

\* A replica has got all that its primary has executed, and acknowledges it.
Acknowledge(f) ==
    LET p == follows[f] IN
    /\ f # p /\ Primary(p)
    /\ key' = [key EXCEPT ![f] = key[p]] /\ left' = [left EXCEPT ![f] = left[p]]
    /\ round' = [c \in Claims |-> LET r == round[c] IN
                    IF r.at = p /\ OldFollower(f, r) THEN Settled([r EXCEPT !.acks = @ \cup {f}]) ELSE r]
    /\ UNCHANGED <<follows, since, crashes, says>>

\* The server follows another, or none, from now on; its own replicas have to connect again.
Turns(s, p, age) ==
    /\ follows' = [follows EXCEPT ![s] = p]
    /\ since' = [f \in Servers |-> IF f = s THEN age ELSE IF follows[f] = s THEN 0 ELSE since[f]]

\* nothing comes of what s has executed and not yet said yes to
Ends(s) == round' = [c \in Claims |-> IF round[c].at = s THEN NoRound ELSE round[c]]
EndsIf(s) == IF On("the same replid") THEN Ends(s) ELSE UNCHANGED round

Promote(s) ==
    /\ ~Primary(s)
    /\ Turns(s, s, IF On("guard after a promotion") THEN (IF On("guard of MaxLease") THEN 0 ELSE 1) ELSE Old)
    /\ EndsIf(s) /\ UNCHANGED <<key, left, crashes, says>>

\* A copy of everything begins with nothing. It may never get further.
Follow(s, p) ==
    /\ p # s /\ p # follows[s] /\ Turns(s, p, 0) /\ EndsIf(s)
    /\ \/ UNCHANGED <<key, left>>
       \/ key' = [key EXCEPT ![s] = Free] /\ left' = [left EXCEPT ![s] = 0]
    /\ UNCHANGED <<crashes, says>>

\* a restart that forgets everything
Crash(s) ==
    /\ crashes < Crashes /\ crashes' = crashes + 1
    /\ Turns(s, s, 0) /\ Ends(s)
    /\ key' = [key EXCEPT ![s] = Free] /\ left' = [left EXCEPT ![s] = 0]
    /\ UNCHANGED says

----------------------------------------------------------------------------
Near(x) == Max(x - 1, 0)

Tick ==
    LET late(r) == r.age + 1 >= (IF r.votes THEN Window ELSE MaxLease) IN
    /\ since' = [s \in Servers |-> IF since[s] < Old THEN since[s] + 1 ELSE Old]
    /\ key' = [s \in Servers |-> IF left[s] > 1 THEN key[s] ELSE Free] /\ left' = [s \in Servers |-> Near(left[s])]
    /\ round' = [c \in Claims |-> LET r == round[c] IN IF r = NoRound \/ late(r) THEN NoRound ELSE [r EXCEPT !.age = @ + 1]]
    /\ says' = [c \in Claims |-> Near(says[c])]
    /\ UNCHANGED <<follows, crashes>>

Next ==
    \/ Tick
    \/ \E c \in Claims : Begin(c, TRUE) \/ Begin(c, FALSE) \/ Count(c)
    \/ \E s \in Servers : Acknowledge(s) \/ Promote(s) \/ Crash(s) \/ \E p \in Servers : Follow(s, p)
    \/ \E s \in Servers, c \in Claims : Acquire(s, c) \/ Extend(s, c)

SpecReplicas == Init /\ [][Next]_vars

\* what is promised
Sound == \A c, d \in Claims : says[c] > 0 /\ says[d] > 0 => c = d

Symmetry == Permutations(Servers) \cup Permutations(Claims)
=============================================================================
