package backlog_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/backlog"
)

func TestDurationsInALog(t *testing.T) {
	var out strings.Builder
	line := backlog.Line(time.Now(), slog.LevelWarn, "node ignored", "node", "n1", "for", 5281*time.Millisecond)
	assert.Succeed(t, slog.NewJSONHandler(&out, nil).Handle(t.Context(), line))
	assert.That(t, strings.Contains(out.String(), `"node":"n1","for":"5.281s"`), "%s", out.String())
}
