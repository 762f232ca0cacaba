package docker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// maxReply bounds a reply, in bytes. A view of 512 layers has 100 KiB of paths.
const maxReply = 1 << 20

// call makes a call whose reply is one message.
func (s *snapshots) call(ctx context.Context, method string, message []byte) ([]byte, error) {
	messages, err := s.exchange(ctx, method, message)
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 {
		return nil, errors.New("containerd: its reply is not one message")
	}
	return messages[0], nil
}

// exchange sends a message and returns those of the reply (gRPC over HTTP/2,
// PROTOCOL-HTTP2.md).
func (s *snapshots) exchange(ctx context.Context, method string, message []byte) ([][]byte, error) {
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://containerd/containerd.services."+method, bytes.NewReader(append(body, message...)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	req.Header.Set("Containerd-Namespace", s.namespace)
	res, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(res.Body, maxReply))
	if err != nil {
		return nil, err
	}
	status, words := res.Trailer.Get("Grpc-Status"), res.Trailer.Get("Grpc-Message")
	if status == "" {
		status, words = res.Header.Get("Grpc-Status"), res.Header.Get("Grpc-Message")
	}
	if status != "0" {
		if said, err := url.PathUnescape(words); err == nil {
			words = said
		}
		return nil, &grpcError{words, status, res.StatusCode}
	}
	var messages [][]byte
	for len(reply) > 0 {
		if len(reply) < 5 || reply[0] != 0 || int64(binary.BigEndian.Uint32(reply[1:])) > int64(len(reply)-5) {
			return nil, errors.New("containerd: its reply is cut off")
		}
		end := 5 + int(binary.BigEndian.Uint32(reply[1:]))
		messages, reply = append(messages, reply[5:end]), reply[end:]
	}
	return messages, nil
}

// grpcNotFound is the status NOT_FOUND (grpc, doc/statuscodes.md).
const grpcNotFound = "5"

// grpcError is the status of a call that failed.
type grpcError struct {
	words, status string
	http          int
}

func (e *grpcError) Error() string {
	return fmt.Sprintf("containerd: %s (HTTP %d, status %q)", e.words, e.http, e.status)
}

// protoFields are the fields of a message; here all are strings or messages
// (https://protobuf.dev/programming-guides/encoding).
type protoFields []protoField

type protoField struct {
	number uint64
	value  string
}

// The kinds of fields.
const (
	varint          = 0
	lengthDelimited = 2
)

// get returns the value of the first field with that number, "" if there is none.
func (f protoFields) get(number uint64) string {
	for _, x := range f {
		if x.number == number {
			return x.value
		}
	}
	return ""
}

// message encodes the fields.
func (f protoFields) message() (b []byte) {
	for _, x := range f {
		b = binary.AppendUvarint(b, x.number<<3|lengthDelimited)
		b = binary.AppendUvarint(b, uint64(len(x.value)))
		b = append(b, x.value...)
	}
	return b
}

var errProto = errors.New("containerd: its reply is no message of this kind")

// readProto decodes fields of strings and messages; it skips numbers.
func readProto(b []byte) (fields protoFields, err error) {
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errProto
		}
		b = b[n:]
		size, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errProto
		}
		b = b[n:]
		switch key & 7 {
		case varint: // it was the size just read
		case lengthDelimited:
			if size > uint64(len(b)) {
				return nil, errProto
			}
			fields = append(fields, protoField{key >> 3, string(b[:size])})
			b = b[size:]
		default:
			return nil, errProto
		}
	}
	return fields, nil
}
