#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An S3 in memory that does one thing wrong.

  wrong_s3.py PORT ignores    a PUT with If-None-Match replaces what is there
  wrong_s3.py PORT refuses    it is answered by 501 NotImplemented
  wrong_s3.py PORT restarts   each list begins with the first name
  wrong_s3.py PORT headless   something on the way refuses each HEAD
  wrong_s3.py PORT absent     what stands before it answers the first two
                              requests for each path, before it is up: 404
  wrong_s3.py PORT rotates    the keys that it takes are others from the object
                              "rotate" on
  wrong_s3.py PORT empty      the first page of each list has nothing; below
                              "cut/" it does not say how the list goes on

All else that stores are read and written by it has, but for uploads in parts;
signatures are not looked at."""

import email.utils
import hashlib
import http.server
import re
import sys
import threading
import time
import urllib.parse
import xml.sax.saxutils

WRITE_ID = "x-amz-meta-ckptree-write-id"


class Handler(http.server.BaseHTTPRequestHandler):
  """One request. Objects are by their path, which begins with the bucket."""
  protocol_version = "HTTP/1.1"
  objects, lock, wrong = {}, threading.Lock(), ""
  asked, rotated = {}, False

  def refused(self):
    """Whether it was answered without a look at what is there."""
    if self.wrong == "headless" and self.command == "HEAD":
      self.answer(405)
      return True
    if self.wrong == "absent":
      path = self.path.partition("?")[0]
      with self.lock:
        self.asked[path] = self.asked.get(path, 0) + 1
        early = self.asked[path] <= 2
      if early and path.count("/") > 1:  # The bucket is made by curl.
        self.answer(404, b"default backend - 404", Content_Type="text/plain")
        return True
    if self.wrong == "rotates":
      second = "Credential=second/" in self.headers.get("Authorization", "")
      if second != Handler.rotated:
        self.fail(403, "InvalidAccessKeyId")
        return True
    return False

  def answer(self, status, body=b"", **headers):
    self.send_response(status)
    headers.setdefault("Content_Length", str(len(body)))
    for name, value in headers.items():
      self.send_header(name.replace("_", "-"), value)
    self.end_headers()
    if self.command != "HEAD":
      self.wfile.write(body)

  def fail(self, status, code):
    self.answer(status, f"<Error><Code>{code}</Code></Error>".encode())

  def do_PUT(self):  # pylint: disable=invalid-name
    body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
    conditional = self.headers.get("If-None-Match")
    if self.refused():
      return None
    if self.path.endswith("/rotate"):
      Handler.rotated = True
    if conditional and self.wrong == "refuses":
      return self.fail(501, "NotImplemented")
    with self.lock:
      if conditional and self.wrong != "ignores" and self.path in self.objects:
        return self.fail(412, "PreconditionFailed")
      self.objects[self.path] = (body, time.time(), self.headers.get(WRITE_ID))
    return self.answer(200, ETag=self.tag(body))

  def do_DELETE(self):  # pylint: disable=invalid-name
    if self.refused():
      return
    with self.lock:
      self.objects.pop(self.path, None)
    self.answer(204)

  def do_HEAD(self):  # pylint: disable=invalid-name
    self.do_GET()

  def do_GET(self):  # pylint: disable=invalid-name
    path, _, query = self.path.partition("?")
    if self.refused():
      return None
    if query:
      return self.list(path.rstrip("/") + "/", urllib.parse.parse_qs(query))
    with self.lock:
      found = self.objects.get(path)
    if found is None:
      return self.fail(404, "NoSuchKey")
    body, made, write_id = found
    headers = {"ETag": self.tag(body),
               "Last-Modified": email.utils.formatdate(made, usegmt=True)}
    if write_id:
      headers[WRITE_ID] = write_id
    if self.command == "HEAD":
      return self.answer(200, Content_Length=str(len(body)), **headers)
    ranged = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
    if not ranged:
      return self.answer(200, body, **headers)
    first = int(ranged[1])
    if first >= len(body):
      return self.fail(416, "InvalidRange")
    part = body[first:int(ranged[2]) + 1]
    headers["Content-Range"] = (
        f"bytes {first}-{first + len(part) - 1}/{len(body)}")
    return self.answer(206, part, **headers)

  def list(self, bucket, query):
    """All in one page."""
    if "uploads" in query or "list-type" not in query:
      return self.answer(
          200, b"<ListMultipartUploadsResult></ListMultipartUploadsResult>")
    prefix, = query.get("prefix", [""])
    after, = query.get("start-after", [""])
    if self.wrong == "restarts":
      after = ""
    if self.wrong == "empty" and "continuation-token" not in query:
      how = "" if "/cut/" in "/" + prefix else (
          "<NextContinuationToken>the/rest</NextContinuationToken>")
      return self.answer(200, (
          f"<ListBucketResult><IsTruncated>true</IsTruncated>{how}"
          "</ListBucketResult>").encode())
    entries = []
    with self.lock:
      for path, (body, made, _) in sorted(self.objects.items()):
        key = path[len(bucket):]
        if path.startswith(bucket + prefix) and key > after:
          at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made))
          entries.append(
              f"<Contents><Key>{xml.sax.saxutils.escape(key)}</Key>"
              f"<Size>{len(body)}</Size><LastModified>{at}</LastModified>"
              "</Contents>")
    return self.answer(200, (
        "<ListBucketResult><IsTruncated>false</IsTruncated>"
        f"{''.join(entries)}</ListBucketResult>").encode())

  @staticmethod
  def tag(body):
    return '"' + hashlib.sha256(body).hexdigest() + '"'

  def log_message(self, format, *args):  # pylint: disable=redefined-builtin
    pass


def main():
  Handler.wrong = sys.argv[2]
  http.server.ThreadingHTTPServer(
      ("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
  main()
