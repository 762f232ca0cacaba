package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"strings"

	"go.mongodb.org/mongo-driver/bson"
)

// MongoDB stores documents whose keys have dots, as the provides of an artifact do.
// FerretDB refuses them. So what the service stores goes through keys, which writes
// another character in the place of the dots, and what it reads goes back.

const stored = "\uff0e" // a dot of double width

// maxMessage bounds a message of MongoDB's protocol.
const maxMessage = 48 << 20

// opMsg is the only kind of message that carries documents.
const opMsg = 2013

// keys passes connections on to a database.
func keys(listener net.Listener, database string) error {
	for {
		service, err := listener.Accept()
		if err != nil {
			return err
		}
		behind, err := net.Dial("tcp", database)
		if err != nil {
			return err
		}
		go pass(behind, service, request)
		go pass(service, behind, reply)
	}
}

// pass copies messages until the connection ends.
func pass(to, from net.Conn, change func(bson.D, string) bson.D) {
	defer to.Close()
	for {
		message, err := read(from)
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && binary.LittleEndian.Uint32(message[12:]) == opMsg {
			message, err = changed(message, change)
		}
		if err == nil {
			_, err = to.Write(message)
		}
		if err != nil {
			log.Print("keys: ", err)
			return
		}
	}
}

func read(from io.Reader) ([]byte, error) {
	header := make([]byte, 16)
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(header)
	if size < 16 || size > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	message := append(header, make([]byte, size-16)...)
	_, err := io.ReadFull(from, message[16:])
	return message, err
}

// changed returns a message with its documents changed. change is told the name of the
// sequence that a document is in, "" for the body.
func changed(message []byte, change func(bson.D, string) bson.D) ([]byte, error) {
	out := append([]byte{}, message[:20]...)
	for rest := message[20:]; len(rest) > 0; {
		kind, section := rest[0], rest[1:]
		if len(section) < 4 {
			return nil, io.ErrUnexpectedEOF
		}
		size := int(binary.LittleEndian.Uint32(section))
		if size < 5 || size > len(section) || kind > 1 {
			return nil, fmt.Errorf("a section of kind %d and %d bytes", kind, size)
		}
		rest, section = section[size:], section[:size]
		out = append(out, kind)
		if kind == 0 {
			document, err := encoded(section, "", change)
			if err != nil {
				return nil, err
			}
			out = append(out, document...)
			continue
		}
		name, documents, ok := strings.Cut(string(section[4:]), "\x00")
		if !ok {
			return nil, io.ErrUnexpectedEOF
		}
		start := len(out)
		out = append(append(out, 0, 0, 0, 0), name+"\x00"...)
		for len(documents) > 0 {
			if len(documents) < 4 {
				return nil, io.ErrUnexpectedEOF
			}
			n := int(binary.LittleEndian.Uint32([]byte(documents)))
			if n < 5 || n > len(documents) {
				return nil, fmt.Errorf("a document of %d bytes", n)
			}
			document, err := encoded([]byte(documents[:n]), name, change)
			if err != nil {
				return nil, err
			}
			out, documents = append(out, document...), documents[n:]
		}
		binary.LittleEndian.PutUint32(out[start:], uint32(len(out)-start))
	}
	binary.LittleEndian.PutUint32(out, uint32(len(out)))
	return out, nil
}

func encoded(document []byte, sequence string, change func(bson.D, string) bson.D) ([]byte, error) {
	var d bson.D
	if err := bson.Unmarshal(document, &d); err != nil {
		return nil, err
	}
	return bson.Marshal(change(d, sequence))
}

// request changes the documents that a request stores. Dots in queries and in the fields
// of updates lead into documents, and stay.
func request(d bson.D, sequence string) bson.D {
	for i, e := range d {
		switch {
		case sequence == "documents", sequence == "" && e.Key == "documents":
			d[i] = bson.E{Key: strings.ReplaceAll(e.Key, ".", stored), Value: replaced(e.Value, ".", stored)}
		case sequence == "updates" && e.Key == "u", sequence == "" && e.Key == "update":
			d[i].Value = update(e.Value)
		}
	}
	return d
}

// update changes the values of an update's operators.
func update(u any) any {
	operators, ok := u.(bson.D)
	if !ok {
		return u
	}
	for _, operator := range operators {
		if fields, ok := operator.Value.(bson.D); ok {
			for i := range fields {
				fields[i].Value = replaced(fields[i].Value, ".", stored)
			}
		}
	}
	return operators
}

func reply(d bson.D, _ string) bson.D {
	return replaced(d, stored, ".").(bson.D)
}

// replaced replaces a string in all keys of a value.
func replaced(value any, old, new string) any {
	switch v := value.(type) {
	case bson.D:
		for i, e := range v {
			v[i] = bson.E{Key: strings.ReplaceAll(e.Key, old, new), Value: replaced(e.Value, old, new)}
		}
	case bson.A:
		for i := range v {
			v[i] = replaced(v[i], old, new)
		}
	}
	return value
}
