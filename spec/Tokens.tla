------------------------------- MODULE Tokens -------------------------------
(* Lock, with fencing tokens: they rise, and a release is final.            *)
EXTENDS Lock

CONSTANT Highest    \* tokens are 1..Highest

VARIABLES
    fence,          \* of each node: the highest token that it has seen
    old,            \* of each node: the highest token that was drawn before its life began
    sent,           \* of each claim: the tokens of the commands that may give it a key
    turn,           \* of each claim that waits for a hand-over: with which token it gets it
    top,            \* the highest token of a lease so far
    freed           \* of each node: the claims whose release it has executed in this life

all == <<vars, fence, old, sent, turn, top, freed>>

Greatest(S) == CHOOSE t \in S \cup {0} : \A u \in S : u <= t
Least(S)    == CHOOSE t \in S : \A u \in S : t <= u

\* of a lease: that of its attempt, or that with which it was handed over
Token(c) == IF c \in Offer THEN turn[c] ELSE Least(sent[c])

\* The assumption about clocks: when a node that has forgotten votes again, all new tokens are
\* above those of before.
Drawn == {t \in 1..Highest : On("tokens from clocks") => \A n \in Nodes : life[n] >= VotesFrom => t > old[n]}

TokenAsk(c) ==
    /\ Ask(c)
    /\ IF c \in Offer THEN UNCHANGED sent ELSE \E t \in Drawn : sent' = [sent EXCEPT ![c] = {t}]
    /\ UNCHANGED <<fence, old, turn, top, freed>>

TokenWin(c) ==
    /\ Win(c) /\ top' = Max(top, Token(c))
    /\ sent' = [sent EXCEPT ![c] = @ \cup {Token(c)}]
    /\ UNCHANGED <<fence, old, turn, freed>>

\* The acquire that gives a key back has a new token.
Heal(c) ==
    /\ Valid(c)
    /\ \E t \in Drawn : t > Greatest(sent[c]) /\ sent' = [sent EXCEPT ![c] = @ \cup {t}]
    /\ UNCHANGED <<vars, fence, old, turn, top, freed>>

Refuses(n, t) == On("token above the fence") /\ t <= fence[n]

TokenAcquire(n, c) ==
    /\ Acquire(n, c)
    /\ \E t \in sent[c] :
       /\ ~Refuses(n, t)
       /\ fence' = [fence EXCEPT ![n] = IF On("acquire raises the fence") THEN Max(@, t) ELSE @]
    /\ UNCHANGED <<old, sent, turn, top, freed>>

\* The token is the releasing holder's. The waiter counts nodes with the same token.
HandOver(n, c) ==
    /\ c \in Offer /\ state[c] = "asking" /\ Acquire(n, c)
    /\ \E t \in Drawn :
       /\ t > fence[n] /\ fence' = [fence EXCEPT ![n] = t]
       /\ turn[c] \in {0, t} \/ ~On("one token for each hand-over")
       /\ turn' = [turn EXCEPT ![c] = IF @ = 0 THEN t ELSE @]
    /\ UNCHANGED <<old, sent, top, freed>>

\* It raises the fence also where there is no key.
TokenRelease(n, c) ==
    /\ state[c] = "over" /\ (Release(n, c) \/ (key[n] # c /\ UNCHANGED vars))
    /\ LET t == IF On("release with the highest token") \/ sent[c] = {} THEN Greatest(sent[c]) ELSE Least(sent[c]) IN
       fence' = [fence EXCEPT ![n] = IF On("release raises the fence") THEN Max(@, t) ELSE @]
    /\ freed' = [freed EXCEPT ![n] = @ \cup {c}]
    /\ UNCHANGED <<old, sent, turn, top>>

TokenCrash(n) ==
    /\ Crash(n)
    /\ fence' = [fence EXCEPT ![n] = 0] /\ freed' = [freed EXCEPT ![n] = {}]
    /\ old' = [old EXCEPT ![n] = Greatest({top} \cup {turn[c] : c \in Claims} \cup UNION {sent[c] : c \in Claims})]
    /\ UNCHANGED <<sent, turn, top>>

TokenTick ==
    /\ Tick
    /\ fence' = [n \in Nodes |-> IF On("fences outlive keys") \/ key'[n] = key[n] THEN fence[n] ELSE 0]
    /\ UNCHANGED <<old, sent, turn, top, freed>>

NextTokens ==
    \/ TokenTick
    \/ \E c \in Claims : TokenAsk(c) \/ TokenWin(c) \/ Heal(c)
    \/ \E c \in Claims : (Begin(c) \/ Confirm(c) \/ Leave(c) \/ Detach(c)) /\ UNCHANGED <<fence, old, sent, turn, top, freed>>
    \/ \E n \in Nodes : TokenCrash(n)
    \/ \E n \in Nodes, c \in Claims : TokenAcquire(n, c) \/ HandOver(n, c) \/ TokenRelease(n, c)
    \/ \E n \in Nodes, c \in Claims : Extend(n, c) /\ UNCHANGED <<fence, old, sent, turn, top, freed>>

InitTokens ==
    /\ Init
    /\ fence = [n \in Nodes |-> 0] /\ old = [n \in Nodes |-> 0]
    /\ sent = [c \in Claims |-> {}] /\ turn = [c \in Claims |-> 0]
    /\ top = 0 /\ freed = [n \in Nodes |-> {}]

SpecTokens == InitTokens /\ [][NextTokens]_all

----------------------------------------------------------------------------
(* What is promised.                                                        *)

\* A lease that begins has a token above those of all leases before.
TokensRise == [][\A c \in Claims : state[c] = "asking" /\ state'[c] = "held" => Token(c) > top]_all

\* No node gives a key back to a claim whose release it has executed.
NoGhost == \A n \in Nodes : key[n] \notin freed[n]
=============================================================================
