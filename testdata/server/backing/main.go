// Command backing runs what the deployments service of the Mender server needs: FerretDB
// with SQLite in the place of MongoDB, and an S3 store in memory.
//
//	backing DIRECTORY
//
// keeps the database in the directory and listens on free ports of 127.0.0.1. It prints
// the URLs of the database and of the store, one a line, and ends when its standard input
// ends.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/FerretDB/FerretDB/ferretdb"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: backing DIRECTORY")
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatal("backing: ", err)
	}
}

func run(dir string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db, err := ferretdb.New(&ferretdb.Config{
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Listener:  ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
		Handler:   "sqlite",
		SQLiteURL: "file:" + dir + "/",
	})
	if err != nil {
		return err
	}
	store, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	uri, err := url.Parse(db.MongoDBURI())
	if err != nil {
		return err
	}
	ended := make(chan error, 4)
	go func() { ended <- keys(front, uri.Host) }()
	go func() { ended <- db.Run(ctx) }()
	go func() { ended <- http.Serve(store, gofakes3.New(s3mem.New()).Server()) }()
	if err := prepare(ctx, db.MongoDBURI()); err != nil {
		return err
	}
	fmt.Printf("mongodb://%s\nhttp://%s\n", front.Addr(), store.Addr())
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	return <-ended
}

// prepare makes the database what the service's migrations would make it, as far as it
// matters here. FerretDB has no text indexes, and the first migration needs one. The
// service starts if the version of the last migration is there. The index keeps artifacts
// of one name apart by what they depend on.
func prepare(ctx context.Context, uri string) error {
	client, err := mongo.Connect(ctx, options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	db := client.Database("deployment_service")
	_, err = db.Collection("migration_info").InsertOne(ctx, bson.M{
		"version": bson.M{"major": 1, "minor": 2, "patch": 17}, "timestamp": time.Now(),
	})
	if err != nil {
		return err
	}
	_, err = db.Collection("images").Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys:    bson.D{{Key: "meta_artifact.name", Value: 1}, {Key: "meta_artifact.depends_idx", Value: 1}},
		Options: options.Index().SetUnique(true),
	})
	if err != nil {
		return err
	}
	return client.Disconnect(ctx)
}
