package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// file is a file that is released. Its name is relative to the prefix, which is /usr or any folder.
type file struct {
	name string
	mode int64 // permissions
	data []byte
}

// tree are files.
type tree []file

func (t *tree) add(name string, mode int64, data []byte) { *t = append(*t, file{name, mode, data}) }

// read adds a file of the disk.
func (t *tree) read(from, name string, mode int64) error {
	data, err := os.ReadFile(from)
	t.add(name, mode, data)
	return err
}

// readAll adds the files of a folder, but not of those in it.
func (t *tree) readAll(from, name string, mode int64) error {
	list, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, f := range list {
		if f.IsDir() {
			continue
		}
		if err := t.read(filepath.Join(from, f.Name()), path.Join(name, f.Name()), mode); err != nil {
			return err
		}
	}
	return nil
}

func (t tree) sort() { slices.SortFunc(t, func(a, b file) int { return cmp.Compare(a.name, b.name) }) }

// folders returns the folders of the files, each behind the one it is in.
func (t tree) folders() []string {
	seen := map[string]bool{".": true}
	var list []string
	for _, f := range t {
		for dir := path.Dir(f.name); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			list = append(list, dir)
		}
	}
	slices.Sort(list)
	return list
}

// writeTar writes the files, below a folder, as root's and of one time.
func (t tree) writeTar(to io.Writer, folder string, at time.Time) error {
	w := tar.NewWriter(to)
	header := func(kind byte, name string, mode, size int64) error {
		return w.WriteHeader(&tar.Header{Typeflag: kind, Name: path.Join(folder, name), Mode: mode, Size: size,
			ModTime: at, Uname: "root", Gname: "root", Format: tar.FormatUSTAR})
	}
	for _, dir := range append([]string{"."}, t.folders()...) {
		if err := header(tar.TypeDir, dir+"/", 0o755, 0); err != nil {
			return err
		}
	}
	for _, f := range t {
		if err := header(tar.TypeReg, f.name, f.mode, int64(len(f.data))); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	return w.Close()
}

// archive writes the release's archive for a processor.
func (r *release) archive(arch string, t tree) error {
	folder := fmt.Sprintf("goroced_%s_linux_%s", r.number(), arch)
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := t.writeTar(w, folder, r.date); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return r.write(folder+".tar.gz", packed.Bytes())
}
