package fleet

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
)

// Bounds of an inventory.
const (
	maxRecord = 1 << 20 // bytes of a device
	maxValue  = 512     // bytes of a value
	// maxRows is how many different rows there may be. A fleet has some thousands.
	maxRows = 100_000
	// maxGarbage is how many devices that cannot be read are named.
	maxGarbage = 20
	batchBytes = 256 << 10
)

// Row is one row of the histogram: what a device has.
type Row struct {
	Version    string `json:"version"`     // the artifact's name or version; "": the application is not installed
	DeviceType string `json:"device_type"` // "": the inventory does not say
	Platform   string `json:"platform"`    // "": the inventory does not say
}

func (r Row) compare(o Row) int {
	return cmp.Or(cmp.Compare(r.Version, o.Version), cmp.Compare(r.Platform, o.Platform), cmp.Compare(r.DeviceType, o.DeviceType))
}

// Inventory counts devices.
type Inventory struct {
	Rows    map[Row]int64
	Devices int64
	Skipped int64    // devices that could not be read
	Garbage []string // what was wrong with the first of them, FILE:LINE: text
}

// attributes are the names under which an inventory has what counts; the first that has a
// value wins.
type attributes struct {
	version, deviceType, platform []string
	slots                         map[string]int // all of them
}

func attributesOf(application string) attributes {
	a := attributes{
		version: []string{
			"app_" + application + "_artifact", "data-partition." + application + ".version", "rootfs-image." + application + ".version", "version",
		},
		deviceType: []string{"device_type"},
		platform:   []string{"platform"},
		slots:      map[string]int{},
	}
	for i, name := range slices.Concat(a.version, a.deviceType, a.platform) {
		a.slots[name] = i
	}
	return a
}

// record is a device as it lies in a file.
type record struct {
	at   int // its line, or its number in a list
	text []byte
}

// reader reads one file.
type reader struct {
	name    string
	want    attributes
	lenient bool

	mu      sync.Mutex
	into    *Inventory
	garbage []problem
}

type problem struct {
	at   int
	text string
}

// ReadInventories counts the devices in files: what Mender's inventory API exports (a list
// of devices with attributes), JSON lines, and CSV with a line of names. A device counts as
// often as it is listed. One that cannot be read is an error that names it, or is skipped
// and counted if lenient. It holds some MiB, whatever the size of the files.
func ReadInventories(ctx context.Context, files []string, application string, lenient bool) (*Inventory, error) {
	all := &Inventory{Rows: map[Row]int64{}}
	for _, name := range files {
		r := &reader{name: name, want: attributesOf(application), lenient: lenient, into: all}
		if err := r.read(ctx); err != nil {
			return nil, err
		}
		slices.SortFunc(r.garbage, func(a, b problem) int { return cmp.Compare(a.at, b.at) })
		for _, p := range r.garbage {
			if len(all.Garbage) < maxGarbage {
				all.Garbage = append(all.Garbage, fmt.Sprintf("%s:%d: %s", name, p.at, p.text))
			}
		}
	}
	if all.Skipped > 0 && !lenient {
		return nil, &Error{
			Text: fmt.Sprintf("%d of %s cannot be read: %s", all.Skipped, metered.Count(int(all.Devices+all.Skipped), "device"), strings.Join(all.Garbage, "; ")),
			Hint: "mend the inventory, or skip them with --lenient",
		}
	}
	if all.Devices == 0 {
		return nil, &Error{Text: "there is no device in " + strings.Join(files, ", "), Hint: "give an export of Mender's inventory, JSON lines, or CSV with a line of names"}
	}
	return all, nil
}

func (r *reader) read(ctx context.Context) error {
	f, err := os.Open(r.name)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(metered.Reader(ctx, f, nil), 1<<20)
	first, err := firstByte(in)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	batches := make(chan []record, 4)
	var wg sync.WaitGroup
	for range max(runtime.GOMAXPROCS(0), 2) {
		wg.Go(func() { r.count(batches) })
	}
	switch first {
	case '[':
		err = r.list(ctx, in, batches)
	case '{':
		err = r.lines(in, batches)
	default:
		err = r.csv(in)
	}
	close(batches)
	wg.Wait()
	if err == nil && len(r.into.Rows) > maxRows {
		err = &Error{Text: fmt.Sprintf("%s: devices have more than %d different versions, types and platforms", r.name, maxRows), Hint: "does it have the versions of the application?"}
	}
	return err
}

// firstByte is the first byte that is not a space. It stays in the reader.
func firstByte(in *bufio.Reader) (byte, error) {
	for {
		c, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		if !unicode.IsSpace(rune(c)) {
			return c, in.UnreadByte()
		}
	}
}

// bad counts a device that cannot be read.
func (r *reader) bad(at int, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.into.Skipped++
	if len(r.garbage) < maxGarbage {
		r.garbage = append(r.garbage, problem{at, text})
	}
}

// lines reads a device from each line.
func (r *reader) lines(in *bufio.Reader, out chan<- []record) error {
	b := batch{out: out}
	for at := 1; ; at++ {
		line, long, err := readLine(in)
		switch text := bytes.TrimSpace(line); {
		case long:
			r.bad(at, fmt.Sprintf("the line has more than %d bytes", maxRecord))
		case len(text) > 0:
			b.add(at, text)
		}
		if err != nil {
			b.flush()
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// readLine reads a line of at most maxRecord bytes. Of a longer one it reads all, and
// returns nothing but long.
func readLine(in *bufio.Reader) (line []byte, long bool, err error) {
	line, err = in.ReadSlice('\n')
	if err == nil || !errors.Is(err, bufio.ErrBufferFull) {
		return line, false, err
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = in.ReadSlice('\n')
	}
	return nil, true, err
}

// batch collects records for another goroutine.
type batch struct {
	out  chan<- []record
	list []record
	text []byte
}

// add copies a record.
func (b *batch) add(at int, text []byte) {
	if len(b.text)+len(text) > cap(b.text) {
		b.flush()
		b.text = make([]byte, 0, max(batchBytes, len(text)))
	}
	n := len(b.text)
	b.text = append(b.text, text...)
	b.list = append(b.list, record{at, b.text[n:]})
}

func (b *batch) flush() {
	if len(b.list) > 0 {
		b.out <- b.list
	}
	b.list, b.text = nil, nil
}

// list reads the devices of a list.
func (r *reader) list(ctx context.Context, in *bufio.Reader, out chan<- []record) error {
	b := batch{out: out}
	defer b.flush()
	n, err := elements(in, maxRecord, func(at int, text []byte) {
		if text == nil {
			r.bad(at, fmt.Sprintf("the device has more than %d bytes", maxRecord))
			return
		}
		b.add(at, bytes.TrimSpace(text))
	})
	if err == nil {
		if c, more := firstByte(in); more == nil {
			err = fmt.Errorf("%q follows the list", c)
		} else if !errors.Is(more, io.EOF) {
			err = more
		}
	}
	if err != nil && ctx.Err() == nil {
		err = &Error{Text: fmt.Sprintf("%s: after device %d: %v", r.name, n, err), Hint: "export the inventory again; --lenient skips devices, not the end of the file"}
	}
	return err
}

// count reads devices of batches and adds them up.
func (r *reader) count(batches <-chan []record) {
	rows := map[Row]int64{}
	for list := range batches {
		for _, rec := range list {
			row, err := r.want.device(rec.text)
			if err != nil {
				r.bad(rec.at, err.Error())
			} else if rows[row]++; len(rows) > maxRows {
				r.add(rows)
				clear(rows)
			}
		}
	}
	r.add(rows)
}

func (r *reader) add(rows map[Row]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for row, n := range rows {
		r.into.Devices += n
		if _, there := r.into.Rows[row]; there || len(r.into.Rows) <= maxRows {
			r.into.Rows[row] += n
		}
	}
}

// device reads a device: an object with attributes, or with a list of them under
// "attributes".
func (a *attributes) device(text []byte) (Row, error) {
	values, err := attributesIn(text, a.slots)
	if err != nil {
		return Row{}, err
	}
	return a.row(func(name string) (string, error) { return textOf(values[a.slots[name]]) })
}

// row finds the attributes that count.
func (a *attributes) row(value func(name string) (string, error)) (row Row, err error) {
	for _, want := range []struct {
		names []string
		to    *string
	}{{a.version, &row.Version}, {a.deviceType, &row.DeviceType}, {a.platform, &row.Platform}} {
		for _, name := range want.names {
			s, err := value(name)
			switch {
			case err != nil:
				return row, fmt.Errorf("%s %w", name, err)
			case len(s) > maxValue:
				return row, fmt.Errorf("%s has more than %d bytes", name, maxValue)
			case strings.ContainsFunc(s, unicode.IsControl):
				return row, fmt.Errorf("%s has control characters", name)
			}
			if *want.to = s; s != "" {
				break
			}
		}
	}
	if row.Platform != "" {
		if _, err := image.ParsePlatform(row.Platform); err != nil {
			return row, fmt.Errorf("platform %q is none", row.Platform)
		}
	}
	if row.Version == "" && row.DeviceType == "" && row.Platform == "" {
		return row, errors.New("it has neither a device_type nor a version")
	}
	return row, nil
}

// csv reads a device from each line. The first line has the names of the attributes.
func (r *reader) csv(in io.Reader) error {
	c := csv.NewReader(in)
	c.ReuseRecord, c.FieldsPerRecord = true, -1
	head, err := c.Read()
	if err != nil {
		return &Error{Text: fmt.Sprintf("%s: %v", r.name, err)}
	}
	column := map[string]int{}
	for i, name := range head {
		name = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")), " ", "_"))
		if _, there := column[name]; !there {
			column[name] = i
		}
	}
	known := slices.Concat(r.want.version, r.want.deviceType)
	if !slices.ContainsFunc(known, func(name string) bool { _, ok := column[strings.ToLower(name)]; return ok }) {
		return &Error{Text: r.name + ": its first line has no column that counts", Hint: "columns are " + strings.Join(append(known, r.want.platform...), ", ")}
	}
	columns := len(head)
	rows := map[Row]int64{}
	for {
		fields, err := c.Read()
		if errors.Is(err, io.EOF) {
			r.add(rows)
			return nil
		}
		var wrong *csv.ParseError
		if errors.As(err, &wrong) {
			r.bad(wrong.StartLine, wrong.Err.Error())
			continue
		}
		if err != nil {
			return err
		}
		at, _ := c.FieldPos(0)
		if len(fields) != columns {
			r.bad(at, fmt.Sprintf("it has %s, and the first line has %d", metered.Count(len(fields), "field"), columns))
			continue
		}
		row, err := r.want.row(func(name string) (string, error) {
			i, ok := column[strings.ToLower(name)]
			if !ok {
				return "", nil
			}
			return strings.TrimSpace(fields[i]), nil
		})
		if err != nil {
			r.bad(at, err.Error())
			continue
		}
		// The fields are parts of one text, which would stay with them.
		if _, there := rows[row]; !there {
			row = Row{strings.Clone(row.Version), strings.Clone(row.DeviceType), strings.Clone(row.Platform)}
		}
		if rows[row]++; len(rows) > maxRows {
			r.add(rows)
			clear(rows)
		}
	}
}
