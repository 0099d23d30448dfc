// Verify opens checkpoints and proofs made by MemAudit with the Go project's own packages, which share no code with it.
//
// Input: one JSON object per line, {"kind": "note" | "inclusion" | "consistency", ...}. Output: one line per input,
// "ok" or the error.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type testCase struct {
	Kind  string   `json:"kind"`
	VKey  string   `json:"vkey"`
	Note  string   `json:"note"`
	Size  int64    `json:"size"`
	Size2 int64    `json:"size2"`
	Index int64    `json:"index"`
	Leaf  string   `json:"leaf"`
	Root  string   `json:"root"`
	Root2 string   `json:"root2"`
	Proof []string `json:"proof"`
}

func hash(text string) (h tlog.Hash) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data) != len(h) {
		return h
	}
	copy(h[:], data)
	return h
}

func hashes(texts []string) (out []tlog.Hash) {
	for _, text := range texts {
		out = append(out, hash(text))
	}
	return out
}

func check(c testCase) error {
	switch c.Kind {
	case "note":
		verifier, err := note.NewVerifier(c.VKey)
		if err != nil {
			return err
		}
		opened, err := note.Open([]byte(c.Note), note.VerifierList(verifier))
		if err != nil {
			return err
		}
		lines := strings.Split(opened.Text, "\n")
		if len(lines) != 4 || lines[1] != strconv.FormatInt(c.Size, 10) || lines[2] != c.Root {
			return fmt.Errorf("checkpoint text is %q", opened.Text)
		}
		return nil
	case "inclusion":
		return tlog.CheckRecord(hashes(c.Proof), c.Size, hash(c.Root), c.Index, hash(c.Leaf))
	case "consistency":
		return tlog.CheckTree(hashes(c.Proof), c.Size2, hash(c.Root2), c.Size, hash(c.Root))
	}
	return fmt.Errorf("unknown kind %q", c.Kind)
}

func main() {
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var c testCase
		if err := json.Unmarshal(scanner.Bytes(), &c); err != nil {
			fmt.Println(err)
			continue
		}
		if err := check(c); err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("ok")
		}
	}
}
