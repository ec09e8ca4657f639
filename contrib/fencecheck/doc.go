// Package fencecheck tests what docs/fencing.md says about S3 and MongoDB: on versitygw,
// a gateway with the interface of S3, and on FerretDB, a server with the interface of
// MongoDB. It is a module of its own, so that nobody else gets them.
//
// To test other servers, set FENCING_S3 to http://KEY:SECRET@HOST:PORT or FENCING_MONGODB
// to mongodb://HOST:PORT. The tests make a bucket or a collection, and delete it.
package fencecheck
