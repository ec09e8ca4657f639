//go:build unix

package fencecheck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/FerretDB/FerretDB/ferretdb"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
)

func TestMongoDB(t *testing.T) {
	tests.NeedSeconds(t)
	at := os.Getenv("FENCING_MONGODB")
	if at == "" {
		at = ferret(t)
	}
	client := assert.Got(mongo.Connect(options.Client().ApplyURI(at)))(t)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	orders := mongoOrders{client.Database("redquorum").Collection("fencing", options.Collection().SetWriteConcern(writeconcern.Majority()))}
	t.Cleanup(func() { _ = orders.Drop(context.Background()) })
	t.Run("update", orders.testUpdate)
	t.Run("upsert", orders.testUpsert)
	t.Run("raise and read", orders.testRaise)
	t.Run("late upsert", orders.testLateUpsert)
	t.Run("writers", orders.testWriters)
}

func ferret(t *testing.T) string {
	t.Helper()
	db, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{Unix: socket(t)},
		Logger:    slog.New(slog.DiscardHandler),
		Handler:   "sqlite",
		SQLiteURL: "file:" + t.TempDir() + "/",
	})
	assert.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- db.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return db.MongoDBURI()
}

// mongoOrders are orders.
type mongoOrders struct{ *mongo.Collection }

func (mongoOrders) onPage(method, id string, token node.Token) (filter, update bson.M) {
	statement := regexp.MustCompile(`db\.orders\.` + method + `\(({.*}),\s*({\$set: {.*?}}),\s*{.*w: "majority"}}\)`).FindStringSubmatch(page)
	if statement == nil {
		panic("docs/fencing.md has no " + method)
	}
	for i, to := range []*bson.M{&filter, &update} {
		json := regexp.MustCompile(`([$\w]+):`).ReplaceAllString(statement[i+1], `"$1":`)
		json = strings.NewReplacer("42", strconv.Quote(id), ": token", fmt.Sprintf(`: {"$numberLong": "%d"}`, token)).Replace(json)
		if err := bson.UnmarshalExtJSON([]byte(json), false, to); err != nil {
			panic(err)
		}
	}
	return filter, update
}

func (c mongoOrders) update(ctx context.Context, id string, token node.Token, o ...options.Lister[options.UpdateOneOptions]) (matched int64, err error) {
	filter, update := c.onPage("updateOne", id, token)
	result, err := c.UpdateOne(ctx, filter, update, o...)
	if err != nil {
		return 0, err
	}
	return result.MatchedCount + result.UpsertedCount, nil
}

var upsert = options.UpdateOne().SetUpsert(true)

func (c mongoOrders) insert(t *testing.T, token node.Token) {
	t.Helper()
	assert.Succeed(t, assert.ErrorOf(c.InsertOne(t.Context(), bson.M{"_id": t.Name(), "fence": int64(token), "state": "new"})))
}

// want checks the order.
func (c mongoOrders) want(t *testing.T, want order) {
	t.Helper()
	var got order
	err := c.FindOne(t.Context(), bson.M{"_id": t.Name()}).Decode(&got)
	assert.That(t, got == want && err == nil, "the order is %+v, want %+v; %v", got, want, err)
}

// A lower token is refused, an equal or higher one and the first are not.
func (c mongoOrders) testUpdate(t *testing.T) {
	if n, err := c.update(t.Context(), t.Name(), 7); n != 0 || err != nil {
		t.Errorf("no document: %d, %v", n, err)
	}
	c.insert(t, 0)
	for _, s := range []struct {
		token node.Token
		want  int64
	}{{7, 1}, {6, 0}, {7, 1}, {node.MaxToken, 1}, {node.MaxToken - 1, 0}} {
		n, err := c.update(t.Context(), t.Name(), s.token)
		assert.That(t, n == s.want && err == nil, "token %d: %d, %v; want %d", s.token, n, err, s.want)
	}
	c.want(t, order{node.MaxToken, "sent"})
}

func (c mongoOrders) testUpsert(t *testing.T) {
	for _, s := range []struct {
		token node.Token
		stale bool
	}{{7, false}, {6, true}, {7, false}, {9, false}, {8, true}} {
		n, err := c.update(t.Context(), t.Name(), s.token, upsert)
		if mongo.IsDuplicateKeyError(err) != s.stale || !s.stale && (n != 1 || err != nil) {
			t.Errorf("token %d: %d, %v; stale: %v", s.token, n, err, s.stale)
		}
	}
	c.want(t, order{9, "sent"})
	if n, err := c.CountDocuments(t.Context(), bson.M{"_id": t.Name()}); n != 1 || err != nil {
		t.Errorf("%d documents, %v", n, err)
	}
}

func (c mongoOrders) testRaise(t *testing.T) {
	c.insert(t, 7)
	raise := func(token node.Token) (o order, err error) {
		filter, update := c.onPage("findOneAndUpdate", t.Name(), token)
		err = c.FindOneAndUpdate(t.Context(), filter, update, options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&o)
		return o, err
	}
	if o, err := raise(8); o != (order{8, "new"}) || err != nil {
		t.Error(o, err)
	}
	if o, err := raise(7); !errors.Is(err, mongo.ErrNoDocuments) {
		t.Error(o, err)
	}
	c.want(t, order{8, "new"})
}

// An overtaken upsert fails like a refused one. Without upsert, the second attempt tells
// them apart.
func (c mongoOrders) testLateUpsert(t *testing.T) {
	for _, s := range []struct{ there, token node.Token }{{2, 1}, {1, 2}} {
		c.insert(t, s.there)
		_, err := c.InsertOne(t.Context(), bson.M{"_id": t.Name(), "fence": int64(s.token)}) // as an upsert that has found nothing
		assert.That(t, mongo.IsDuplicateKeyError(err), "%v", err)
		if n, err := c.update(t.Context(), t.Name(), s.token); (n == 1) != (s.token > s.there) || err != nil {
			t.Errorf("token %d after %d: %d, %v", s.token, s.there, n, err)
		}
		assert.Succeed(t, assert.ErrorOf(c.DeleteOne(t.Context(), bson.M{"_id": t.Name()})))
	}
}

// With many writers the fence never falls, if the server checks the filter and writes in
// one step. FerretDB 1 does not.
func (c mongoOrders) testWriters(t *testing.T) {
	ferret := os.Getenv("FENCING_MONGODB") == ""
	c.insert(t, 0)
	var clock atomic.Int64 // of their tokens, which are a bit ahead of it
	var falls atomic.Int64
	var writers, reader sync.WaitGroup
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	reader.Go(func() {
		for highest := node.Token(0); ctx.Err() == nil; {
			var o order
			if err := c.FindOne(t.Context(), bson.M{"_id": t.Name()}).Decode(&o); err != nil {
				t.Error(err)
				return
			}
			if o.Fence < highest {
				falls.Add(1)
			}
			highest = o.Fence
		}
	})
	for range 8 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil && (ferret && falls.Load() == 0 || !ferret && i < 500); i++ {
				if _, err := c.update(t.Context(), t.Name(), node.Token(clock.Add(1)+rand.Int64N(5))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	stop()
	reader.Wait()
	if n := falls.Load(); (n > 0) != ferret {
		t.Errorf("the fence fell %d times in %d writes", n, clock.Load())
	}
}
