package courier

import (
	"github.com/redquorum/redquorum/internal/resp"
)

// A result is the answer to one call, or to several that were sent together.
type result struct {
	val any
	err error // a refusal, if the server sent it
}

// understand makes a result of a reply. All work that grows with the reply is done here,
// while no lock is held, as the server decides how long it is.
func understand(reply any) result {
	switch reply := reply.(type) {
	case error:
		return result{err: refused(reply)}
	case []any:
		if s := decodeInspect(reply); s != nil {
			return result{val: s}
		}
		for i := range reply[:min(len(reply), eachMost)] {
			if err, ok := reply[i].(error); ok {
				reply[i] = refused(err)
			}
		}
	}
	return result{val: reply}
}

// understandAll appends what the replies in b say that are whole: used bytes of it.
func understandAll(p *resp.Parser, b []byte, results []result) (_ []result, used int, err error) {
	p.Reset()
	for used < len(b) {
		reply, n, err := p.Parse(b[used:])
		if n == 0 {
			return results, used, err
		}
		used += n
		results = append(results, understand(reply))
	}
	return results, used, nil
}

func (r result) part(i, n int) result {
	if r.err != nil {
		return r
	}
	list, _ := r.val.([]any)
	if len(list) != n {
		return result{}
	}
	if err, ok := list[i].(error); ok {
		return result{err: err}
	}
	return result{val: list[i]}
}
