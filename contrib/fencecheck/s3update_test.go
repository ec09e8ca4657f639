package fencecheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/redquorum/redquorum/node"
)

var errStale = errors.New("a newer holder was here")

// An order is the content of an object.
type order struct {
	Fence node.Token
	State string
}

// update changes an order, or creates it. It may call change several times.
func update(ctx context.Context, client *s3.Client, bucket, key string, token node.Token, change func(*order)) error {
	for {
		var o order
		put := s3.PutObjectInput{Bucket: &bucket, Key: &key}
		switch object, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key}); {
		case code(err) == "NoSuchKey":
			put.IfNoneMatch = aws.String("*")
		case err != nil:
			return err
		default:
			put.IfMatch = object.ETag
			err = json.NewDecoder(object.Body).Decode(&o)
			object.Body.Close()
			if err != nil {
				return err
			}
		}
		if o.Fence > token {
			return errStale
		}
		change(&o)
		o.Fence = token
		content, err := json.Marshal(o)
		if err != nil {
			return err
		}
		put.Body = bytes.NewReader(content)
		_, err = client.PutObject(ctx, &put)
		switch code(err) {
		case "PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey": // somebody else has written or deleted
			continue
		}
		return err
	}
}

func code(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	return ""
}
