package model_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node/nodetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	tests.NeedSeconds(t)
	nodetest.Run(t, func(*testing.T) nodetest.System { return nodetest.Model(clock.Runtime()) })
}
