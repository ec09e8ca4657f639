package courier

import "context"

// Ask asks a server one thing over a connection of its own, which it then closes. The
// reply is bounded like any other, and is an int64, a string, nil, or a list of these as
// []any. err says what it means for a node.
func Ask(ctx context.Context, t Target, command ...string) (reply any, err error) {
	w, answers, err := newDirect(t).begin(ctx, command)
	if err == nil {
		w.Close()
		err = answers[0].err
	}
	if err != nil {
		return nil, handshakeError(err, t.Renews)
	}
	return answers[0].val, nil
}
