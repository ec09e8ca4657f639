// Mutual exclusion for any nodes, lists, clients and restarts: a proof, which Dafny checks. README.md explains it.
// A line with a protection's name behind it is needed: without it the proof fails.

datatype Node = Node(name: int)
datatype Claim = Claim(name: int)

const Forgetful: set<Node> // these may lose a key, and nobody notices
const MaxLease: int        // what the restart guard reckons with
const Window: int          // W: how long after its start an attempt may be decided
const Drift: int           // the allowance for clocks
const Pace: int            // a node's clock may be ahead by so much
const Lag: int             // and a client's behind by so much

predicate Quorum(c: Claim, nodes: set<Node>) // of the client that makes the claim; see Counts
predicate Share(a: set<Node>, b: set<Node>) { exists n :: n in a && n in b && n !in Forgetful }
predicate {:opaque} AllShare() { forall c, d, a, b :: c != d && Quorum(c, a) && Quorum(d, b) ==> Share(a, b) }
predicate {:opaque} MoreIsEnough() { forall c, a, b :: Quorum(c, a) && a <= b ==> Quorum(c, b) }

predicate Assumed() {
  && 0 <= Pace && 0 <= Lag && MoreIsEnough()
  && Pace + Lag <= Drift // clocks within the allowance
  && AllShare()          // quorums share a node that remembers
}

// A node that restarts has the next life.
datatype Life = Life(node: Node, number: nat)

// A round asks nodes for keys that last that long. An attempt, a hand-over and a Resume need votes, a renewal does not.
datatype Round = Round(claim: Claim, began: int, lasts: int, votes: bool)

datatype World = World(
  now: int,
  current: Node -> nat,       // the number of a node's present life
  born: Life -> int,          // when a life began
  key: Life -> Claim,         // whose key the node has, or had last in that life
  end: Life -> int,           // until when; from then on the name is free there
  counts: Round -> set<Life>, // the lives that count for a round
  gone: Claim -> bool,        // whether releases are under way
  until: Claim -> int,        // until when the lease is valid, or the name must still be taken
  round: Claim -> Round)      // the round that made it so

function Put<A(==), B>(f: A -> B, a: A, b: B): A -> B { x => if x == a then b else f(x) }
function Min(a: int, b: int): int { if a < b then a else b }

predicate Init(w: World) {
  && (forall n :: w.current(n) == 0)
  && (forall l :: w.born(l) <= w.now && w.end(l) <= w.now)
  && (forall r :: w.counts(r) == {})
  && (forall c :: w.until(c) <= w.now)
}

// ---------------------------------------------------------------------------
// What a node does with a command. It may come late, again, or never.

predicate Present(w: World, l: Life) { l.number == w.current(l.node) }

predicate MayCount(w: World, l: Life, r: Round) {
  && r.began <= w.now
  && (r.votes ==> r.began >= w.born(l) - Pace + MaxLease + Drift) // restart guard
  && (!r.votes ==> r.began >= w.born(l) - Pace + Window + Drift)  // young nodes keep no lease
}

// The node has c's key now. It counts for a round of c, unless the answer is lost.
predicate Gives(w: World, v: World, l: Life, c: Claim, till: int, r: Round) {
  var had := w.(key := Put(w.key, l, c), end := Put(w.end, l, till));
  || v == had
  || (&& MayCount(w, l, r)
      && r.claim == c
      && till >= r.began + r.lasts - Pace // keys outlive leases
      && v == had.(counts := Put(w.counts, r, w.counts(r) + {l})))
}

// Of an attempt, of a hand-over, or to heal.
predicate Acquire(w: World, v: World, l: Life, c: Claim, till: int, r: Round) {
  && Present(w, l)
  && w.end(l) <= w.now // grant only what is free
  && Gives(w, v, l, c, till, r)
}

predicate Extend(w: World, v: World, l: Life, c: Claim, till: int, r: Round) {
  && Present(w, l)
  && w.key(l) == c     // extend looks at the owner
  && w.end(l) > w.now
  && till >= w.end(l)  // extend shortens nothing
  && Gives(w, v, l, c, till, r)
}

predicate Release(w: World, v: World, l: Life, c: Claim) {
  && Present(w, l)
  && w.key(l) == c     // release looks at the owner
  && w.gone(c)         // no release before the claim is over
  && v == w.(end := Put(w.end, l, Min(w.end(l), w.now)))
}

// It goes on without the key, and its life does not end.
predicate Forget(w: World, v: World, l: Life) {
  && l.node in Forgetful
  && v == w.(end := Put(w.end, l, Min(w.end(l), w.now)))
}

predicate Crash(w: World, v: World, n: Node) {
  var next := Life(n, w.current(n) + 1);
  v == w.(current := Put(w.current, n, next.number), born := Put(w.born, next, w.now), end := Put(w.end, next, w.now))
}

// ---------------------------------------------------------------------------
// What a client does. By true time it may be late with it, and its lease may end late.

function End(r: Round): int {
  r.began + r.lasts
  - Drift // drift
}
function Latest(r: Round): int { End(r) + Lag }

function Of(lives: set<Life>): set<Node> { set l | l in lives :: l.node }

predicate Confirm(w: World, v: World, c: Claim, r: Round, late: int) {
  && 0 <= late <= Lag
  && r.claim == c
  && r.lasts <= MaxLease + Drift // one MaxLease for all
  && Quorum(c, Of(w.counts(r)))  // a quorum
  && var end := End(r) + late;
    v == if end <= w.until(c) then w else w.(until := Put(w.until, c, end), round := Put(w.round, c, r))
}

// Of an attempt, of a hand-over, or of Resume.
predicate Win(w: World, v: World, c: Claim, r: Round, late: int) {
  && !w.gone(c)                      // a claim that is over is not won
  && r.votes                         // restart guard
  && w.now < r.began + Window + late // decide within the window
  && Confirm(w, v, c, r, late)
}

predicate Renew(w: World, v: World, c: Claim, r: Round, late: int) {
  && w.now < w.until(c)              // renewal in time
  && Confirm(w, v, c, r, late)
}

// The lease ends here, or is handed to another process.
predicate Leave(w: World, v: World, c: Claim, gone: bool) {
  v == w.(until := Put(w.until, c, Min(w.until(c), w.now)), gone := Put(w.gone, c, w.gone(c) || gone))
}

predicate Tick(w: World, v: World) { v.now >= w.now && v == w.(now := v.now) }

predicate Next(w: World, v: World) {
  || Tick(w, v)
  || (exists n :: Crash(w, v, n))
  || (exists l :: Forget(w, v, l))
  || (exists l, c :: Release(w, v, l, c))
  || (exists l, c, till, r :: Acquire(w, v, l, c, till, r) || Extend(w, v, l, c, till, r))
  || (exists c, r, late :: Win(w, v, c, r, late) || Renew(w, v, c, r, late))
  || (exists c, gone :: Leave(w, v, c, gone))
}

// ---------------------------------------------------------------------------
// What is promised, and what is always so: the invariant.

predicate Exclusive(w: World) { forall c, d :: w.now < w.until(c) && w.now < w.until(d) ==> c == d }

predicate Lives(w: World) {
  && (forall l: Life :: l.number <= w.current(l.node) ==> w.born(l) <= w.now)
  && (forall n, i: nat, j: nat :: i < j <= w.current(n) ==> w.born(Life(n, i)) <= w.born(Life(n, j)))
}

// A life that counts was old enough when the round began, and had not ended. It has the key as long as that matters,
// unless its node forgets.
predicate Counted(w: World, l: Life, r: Round) {
  && l.number <= w.current(l.node)
  && w.born(l) + Lag + (if r.votes then MaxLease else Window) <= r.began <= w.now
  && (l.number < w.current(l.node) ==> r.began <= w.born(Life(l.node, l.number + 1)))
  && (l.node !in Forgetful && !w.gone(r.claim) && w.now < Latest(r) ==> w.key(l) == r.claim && w.end(l) >= Latest(r))
}

predicate Backed(w: World, c: Claim, r: Round) {
  !w.gone(c) && r.claim == c && w.until(c) <= Latest(r) && r.lasts <= MaxLease + Drift && Quorum(c, Of(w.counts(r)))
}

predicate Inv(w: World) {
  && Lives(w)
  && (forall r, l :: l in w.counts(r) ==> Counted(w, l, r))
  && (forall c :: w.now < w.until(c) ==> Backed(w, c, w.round(c)))
  && Exclusive(w)
}

// ---------------------------------------------------------------------------
// The proof.

lemma Common(c: Claim, a: set<Node>, d: Claim, b: set<Node>) returns (n: Node)
  requires Assumed() && c != d && Quorum(c, a) && Quorum(d, b)
  ensures n in a && n in b && n !in Forgetful
{
  reveal AllShare();
  assert Share(a, b);
  n :| n in a && n in b && n !in Forgetful;
}

// Two quorums share a node that remembers. If it counts in one life for both, they have one key; else see README.md.
lemma Wins(w: World, v: World, c: Claim, r: Round, late: int, d: Claim)
  requires Assumed() && Inv(w) && Win(w, v, c, r, late) && v.now < v.until(c) && v.now < v.until(d)
  ensures c == d
{
  if c != d && w.until(c) <= w.now {
    assert Backed(w, d, w.round(d));
    var n := Common(c, Of(w.counts(r)), d, Of(w.counts(w.round(d))));
    var l :| l in w.counts(r) && l.node == n;
    var m :| m in w.counts(w.round(d)) && m.node == n;
    assert Counted(w, l, r) && Counted(w, m, w.round(d));
    assert l.number < m.number ==> r.began <= w.born(Life(n, l.number + 1)) <= w.born(m);
    assert m.number < l.number ==> w.round(d).began <= w.born(Life(n, m.number + 1)) <= w.born(l);
  }
}

lemma Decided(w: World, v: World, c: Claim, r: Round, late: int)
  requires Assumed() && Inv(w) && (Win(w, v, c, r, late) || Renew(w, v, c, r, late))
  ensures Inv(v)
{
  forall d | Win(w, v, c, r, late) && v.now < v.until(c) && v.now < v.until(d) ensures c == d {
    Wins(w, v, c, r, late, d);
  }
}

lemma Executed(w: World, v: World, l: Life, c: Claim, till: int, r: Round)
  requires Assumed() && Inv(w) && (Acquire(w, v, l, c, till, r) || Extend(w, v, l, c, till, r))
  ensures Inv(v)
{
  forall d | w.now < w.until(d) ensures Backed(v, d, v.round(d)) {
    assert Backed(w, d, w.round(d));
    reveal MoreIsEnough();
    assert Of(w.counts(w.round(d))) <= Of(v.counts(w.round(d)));
  }
}

lemma Others(w: World, v: World)
  requires Inv(w)
  ensures Tick(w, v) ==> Inv(v)
  ensures forall n :: Crash(w, v, n) ==> Inv(v)
  ensures forall l :: Forget(w, v, l) ==> Inv(v)
  ensures forall l, c :: Release(w, v, l, c) ==> Inv(v)
  ensures forall c, gone :: Leave(w, v, c, gone) ==> Inv(v)
{
}

lemma Step(w: World, v: World)
  requires Assumed() && Inv(w) && Next(w, v)
  ensures Inv(v)
{
  Others(w, v);
  if c, r, late :| Win(w, v, c, r, late) || Renew(w, v, c, r, late) { Decided(w, v, c, r, late); }
  if l, c, till, r :| Acquire(w, v, l, c, till, r) || Extend(w, v, l, c, till, r) { Executed(w, v, l, c, till, r); }
}

lemma Always(run: nat -> World, i: nat)
  requires Assumed() && Init(run(0)) && forall j: nat :: Next(run(j), run(j + 1))
  ensures Inv(run(i)) && Exclusive(run(i))
{
  if i > 0 {
    Always(run, i - 1);
    Step(run(i - 1), run(i));
  }
}

// Which quorums share a node that remembers: j nodes of one list are enough for one client, k of another for another.

lemma Fewer(a: set<Node>, b: set<Node>)
  requires a <= b
  ensures |a| <= |b|
{
  if a != {} {
    var n :| n in a;
    Fewer(a - {n}, b - {n});
  }
}

lemma Counts(list: set<Node>, j: int, a: set<Node>, other: set<Node>, k: int, b: set<Node>)
  requires a <= list && |a| >= j && b <= other && |b| >= k
  requires j + k > |list + other| + |Forgetful| // together more than all nodes, and those that forget
  ensures Share(a, b)
{
  Fewer(a + b, list + other);
  assert |a + b| == |a| + |b| - |a * b|;
  if a * b <= Forgetful { Fewer(a * b, Forgetful); }
}

// ---------------------------------------------------------------------------
lemma Alone(l: Life)
  ensures Of({l}) == {l.node}
{
  forall n ensures n in Of({l}) <==> n == l.node {
    if n == l.node { assert l in {l} && l.node == n; }
  }
}

// The proof is not about nothing: a claim can win, the node can restart, get the key back, and count for a renewal.
lemma Happens(a: World, n: Node, c: Claim) returns (run: seq<World>)
  requires Assumed() && 0 < Window && Window + 2 * Drift < MaxLease && Quorum(c, {n}) && Init(a) && !a.gone(c)
  ensures run != [] && run[0] == a && forall i :: 1 <= i < |run| ==> Next(run[i - 1], run[i])
  ensures exists i, j :: 0 <= i < j < |run| && run[i].current(n) < run[j].current(n)
    && run[i].now < run[i].until(c) < run[j].until(c)
{
  var l, m := Life(n, 0), Life(n, 1);
  Alone(l);
  Alone(m);
  var asks := a.(now := a.now + MaxLease + Drift);
  var r, till := Round(c, asks.now, MaxLease, true), asks.now + MaxLease;
  var has := asks.(key := Put(a.key, l, c), end := Put(a.end, l, till), counts := Put(a.counts, r, {l}));
  assert a.counts(r) + {l} == {l};
  assert Acquire(asks, has, l, c, till, r) == true && Of({l}) == {n};
  var won := has.(until := Put(a.until, c, End(r)), round := Put(a.round, c, r));
  assert Win(has, won, c, r, 0) == true;
  var lost := won.(current := Put(a.current, n, 1), born := Put(a.born, m, won.now), end := Put(won.end, m, won.now));
  assert Crash(won, lost, n) == true;
  var asks2 := lost.(now := lost.now + Window + Drift);
  var s, till2 := Round(c, asks2.now, MaxLease, false), asks2.now + MaxLease;
  var has2 := asks2.(key := Put(has.key, m, c), end := Put(lost.end, m, till2), counts := Put(has.counts, s, {m}));
  assert has.counts(s) + {m} == {m};
  assert Acquire(asks2, has2, m, c, till2, s) == true && Of({m}) == {n};
  var renewed := has2.(until := Put(won.until, c, End(s)), round := Put(won.round, c, s));
  assert Renew(has2, renewed, c, s, 0) == true;
  run := [a, asks, has, won, lost, asks2, has2, renewed];
  assert run[3] == won && run[7] == renewed;
}
