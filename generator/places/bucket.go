package places

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/requests"
)

// amazon is the server without AWS_ENDPOINT_URL.
const amazon = "https://s3.amazonaws.com"

// maxSingle is the size in bytes up to which S3 takes a file in one request. Unlike an upload
// in parts, a request that is cut leaves nothing in the bucket.
const maxSingle = 5 << 30

// bucket is a bucket of an S3 server, or what is below a prefix there.
type bucket struct {
	text         input.Source
	name, prefix string
	client       minio.Core
}

// openBucket takes the server, the region and the credentials from where programs of AWS
// have them: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID,
// AWS_PROFILE, ~/.aws, and the role of the machine.
func openBucket(text input.Source, u *url.URL) (Place, error) {
	b := &bucket{text: text, name: u.Host, prefix: strings.Trim(u.Path, "/")}
	if b.name == "" || u.User != nil || u.RawQuery != "" {
		return nil, &Error{Text: text.String() + " is not a bucket", Hint: "it is s3://BUCKET/PREFIX; the server is in AWS_ENDPOINT_URL"}
	}
	at := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), amazon)
	server, err := url.Parse(at)
	if err != nil || server.Host == "" || server.Scheme != "https" && server.Scheme != "http" {
		return nil, &Error{Text: fmt.Sprintf("AWS_ENDPOINT_URL %s is not a URL", input.Source(at))}
	}
	transport, err := minio.DefaultTransport(server.Scheme == "https")
	if err != nil {
		return nil, err
	}
	client, err := minio.New(server.Host, &minio.Options{
		Secure: server.Scheme == "https",
		Region: cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{},
			&credentials.IAM{Client: &http.Client{Timeout: 5 * time.Second}}, // a machine without a role has nobody there
		}),
		MaxRetries: attempts,
		Transport:  requests.Bounded(requests.Quiet(transport), isObject),
	})
	if err != nil {
		return nil, &Error{Text: text.String(), Err: err}
	}
	client.SetAppInfo("app-gen", "1")
	b.client = minio.Core{Client: client}
	return b, nil
}

// isObject reports whether a request is for an object, and for nothing that S3 has beside it.
func isObject(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.RawQuery == "" }

func (b *bucket) String() string { return b.text.String() }

func (b *bucket) key(name string) string { return path.Join(b.prefix, name) }

// explain says what an error of the server means.
func (b *bucket) explain(err error) error {
	if err == nil {
		return nil
	}
	switch e := minio.ToErrorResponse(err); {
	case e.Code == "NoSuchBucket":
		return &Error{Text: "there is no bucket " + b.name, Hint: "make it, or name its server in AWS_ENDPOINT_URL"}
	case e.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case e.StatusCode == http.StatusUnauthorized, e.StatusCode == http.StatusForbidden:
		return &Error{Text: "the bucket " + b.name, Err: err, Hint: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, of a user who may list, read and write " + b.String()}
	case e.StatusCode >= 400 && e.StatusCode < 500 && e.StatusCode != http.StatusTooManyRequests:
		return &Error{Text: "the bucket " + b.name, Err: err}
	}
	return err
}

func (b *bucket) List(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := b.prefix
	if prefix != "" {
		prefix += "/"
	}
	for object := range b.client.Client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: prefix}) {
		if object.Err != nil {
			return nil, b.explain(object.Err)
		}
		name := strings.TrimPrefix(object.Key, prefix)
		if check(name) != nil { // "directories" among them
			continue
		}
		if names = append(names, name); len(names) > maxFiles {
			return nil, &Error{Text: fmt.Sprintf("%s: more than %d files", b.text, maxFiles)}
		}
	}
	return names, nil
}

func (b *bucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := check(name); err != nil {
		return nil, err
	}
	body, _, _, err := b.client.GetObject(ctx, b.name, b.key(name), minio.GetObjectOptions{})
	if err != nil {
		return nil, b.explain(err)
	}
	return body, nil
}

func (b *bucket) put(ctx context.Context, name string, from io.ReaderAt, size int64, moved func(int64)) error {
	_, err := b.client.Client.PutObject(ctx, b.name, b.key(name), metered.Reader(ctx, io.NewSectionReader(from, 0, size), moved), size,
		minio.PutObjectOptions{ContentType: releaseType, DisableMultipart: size <= maxSingle})
	return b.explain(err)
}
