package certmagiclock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"math/big"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/redquorum/redquorum/contrib/certmagiclock"
	"github.com/redquorum/redquorum/contrib/internal/lockers"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

var (
	_ certmagic.Storage          = (*certmagiclock.Storage)(nil)
	_ certmagic.TryLocker        = (*certmagiclock.Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*certmagiclock.Storage)(nil)
)

const domain = "example.com"

// An issuer signs every request, after before.
type issuer struct{ before func() }

func (issuer) IssuerKey() string { return "test" }

func (i issuer) Issue(_ context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	i.before()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: request.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, key)
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, err
}

// program has certificates in dir. before is called before it issues one.
func program(t *testing.T, l *quorum.Locker, dir string, before func()) (*certmagic.Config, *certmagiclock.Storage) {
	t.Helper()
	storage := certmagiclock.New(l, &certmagic.FileStorage{Path: dir})
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{Logger: zap.NewNop(),
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil }})
	t.Cleanup(cache.Stop)
	config = certmagic.New(cache, certmagic.Config{Storage: storage, Logger: zap.NewNop(), Issuers: []certmagic.Issuer{issuer{before}}})
	return config, storage
}

// While one program gets a certificate another one waits, and then uses it.
func TestOneProgramGetsTheCertificate(t *testing.T) {
	a, b := lockers.Two(t)
	dir := t.TempDir()
	began, finish, done := make(chan bool), make(chan bool), make(chan error)
	first, _ := program(t, a, dir, func() {
		close(began)
		<-finish
	})
	second, storage := program(t, b, dir, func() { t.Error("both programs got a certificate") })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it tries again after errors
	defer cancel()
	go func() { done <- first.ObtainCertAsync(ctx, domain) }()
	select {
	case <-began:
	case err := <-done:
		t.Fatal(err)
	}

	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := second.ObtainCertAsync(short, domain); err == nil {
		t.Error("the second program did not wait for the lock")
	}
	if ok, err := storage.TryLock(t.Context(), "issue_cert_"+domain); ok || err != nil {
		t.Errorf("TryLock while the lock is held: %v, %v", ok, err)
	}
	close(finish)
	assert.Succeed(t, <-done)
	assert.NoError(t, second.ObtainCertAsync(t.Context(), domain))
}

// A program learns that its lock was lost when it renews and when it unlocks. Until then
// its next lock of the name is refused, because Unlock could not tell the two apart.
func TestLostLock(t *testing.T) {
	a, b := lockers.Two(t)
	s := certmagiclock.New(a, &certmagic.FileStorage{Path: t.TempDir()}, quorum.WithLease(3*time.Second))
	ctx := t.Context()
	if ok, err := s.TryLock(ctx, "name"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if found, err := b.Break(ctx, "name"); !found || err != nil {
		t.Fatalf("Break: %v, %v", found, err)
	}
	if err := s.Lock(ctx, "name"); err == nil { // waits for the renewal, which finds that the lock is lost
		t.Fatal("the lock was taken twice")
	}
	assert.Is(t, s.RenewLockLease(ctx, "name", time.Minute), quorum.ErrLost, "RenewLockLease of a lost lock")
	assert.Is(t, s.Unlock(ctx, "name"), quorum.ErrNotHeld, "Unlock of a lost lock")
	assert.Is(t, s.Unlock(ctx, "name"), quorum.ErrNotHeld, "Unlock of no lock")
	assert.Is(t, s.RenewLockLease(ctx, "name", time.Minute), quorum.ErrNotHeld, "RenewLockLease of no lock")
	assert.NoError(t, errors.Join(s.Lock(ctx, "name"), s.Unlock(ctx, "name")))
}

func Example() {
	set, err := embedded.Start(3)
	if err != nil {
		log.Fatal(err)
	}
	defer set.Close()
	locker, err := quorum.New(set.Nodes(), quorum.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	storage := certmagiclock.New(locker, &certmagic.FileStorage{Path: "/mnt/certificates"})
	certmagic.Default.Storage = storage // before certmagic.HTTPS and others

	ctx := context.Background()
	fmt.Println(storage.TryLock(ctx, "issue_cert_example.com"))
	fmt.Println(storage.TryLock(ctx, "issue_cert_example.com"))
	fmt.Println(storage.Unlock(ctx, "issue_cert_example.com"))
	// Output:
	// true <nil>
	// false <nil>
	// <nil>
}
