#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts real object stores for one command, and ends them after it.

  servers.py ceph -- PROGRAM ARG...    a Ceph monitor, an OSD (BlueStore on a
                                       file) and its S3 gateway
  servers.py moto -- PROGRAM ARG...    moto's S3
  servers.py ignores -- PROGRAM ARG... an S3 in memory that takes a conditional
                                       creation for any other (wrong_s3.py)
  servers.py refuses -- PROGRAM ARG... likewise, and it refuses one
  servers.py restarts -- PROGRAM ARG.. likewise, and each list begins anew
  servers.py without -- PROGRAM        nothing: says that the engine was built
                                       without what PROGRAM is about

PROGRAM finds in its environment what the tests are about:

  CKPTREE_TEST_S3         http://127.0.0.1:PORT
  CKPTREE_TEST_BUCKET     a bucket that is there
  CKPTREE_TEST_CEPH_CONF  the cluster's ceph.conf (ceph)
  CKPTREE_TEST_POOL       a pool that is there (ceph)
  CKPTREE_TEST_OSD_PID    the process of the OSD (ceph)
  CKPTREE_TEST_PIDS       a folder with the files mon, osd and radosgw (ceph):
                          the process of each, which is started again where
                          PROGRAM kills it
  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION

The exit code is that of PROGRAM; 77, with the reason printed, where the servers
are not installed: `scripts/install_packages remote`. They are ended by their
process ids, whatever PROGRAM did, and their folder is removed."""

import contextlib
import http.client
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid

ACCESS, SECRET = "ckptreeaccess", "ckptreesecretckptreesecretckptree"
BUCKET, POOL, REGION = "bucket", "pool", "us-east-1"
SKIPPED = 77
# In seconds; a start takes two.
PATIENCE = 60

CONF = """[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{mon_port}]
mon_initial_members = a
public_addr = 127.0.0.1
auth_allow_insecure_global_id_reclaim = false
run_dir = {folder}
admin_socket =
log_file = {folder}/$name.log
mon_cluster_log_file = {folder}/cluster.log
keyring = {folder}/keyring
ms_bind_ipv6 = false
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
osd_objectstore = bluestore
bluestore_block_size = 17179869184
osd_memory_target = 1073741824
osd_max_object_size = 134217728
paxos_propose_interval = 0.02
paxos_min_wait = 0.01
mon_osdmap_full_prune_enabled = false
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_data_avail_crit = 1
mon_data_avail_warn = 1
mon_max_pg_per_osd = 2000
objecter_tick_interval = 0.5
[mon.a]
mon_data = {folder}/mon
[osd]
osd_data = {folder}/osd
osd_heartbeat_interval = 1
[client]
rgw_data = {folder}/rgw
rgw_enable_usage_log = false
rgw_enable_gc_threads = false
rgw_enable_lc_threads = false
rgw_run_sync_thread = false
rgw_thread_pool_size = 64
"""


class Unready(Exception):
  """A server that did not start."""


def free_ports(count):
  """Ports that nobody listens at now."""
  with contextlib.ExitStack() as stack:
    sockets = []
    for _ in range(count):
      one = stack.enter_context(socket.socket())
      one.bind(("127.0.0.1", 0))
      sockets.append(one)
    return [one.getsockname()[1] for one in sockets]


class Ending:
  """The end of a process, as an event."""

  def __init__(self, process):
    self.fd = os.pidfd_open(process.pid)

  def came_within(self, seconds):
    return bool(select.select([self.fd], [], [], seconds)[0])

  def close(self):
    os.close(self.fd)


def wait_for_http(port, process, log):
  """Until the server answers; an error that names it where it ended."""
  end = time.monotonic() + PATIENCE
  with contextlib.closing(Ending(process)) as ending:
    # It tells nobody that it listens: it is asked again while it runs.
    while time.monotonic() < end and not ending.came_within(0.02):
      connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
      with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.request("GET", "/")
        connection.getresponse().read()
        return
  with open(log, encoding="utf-8", errors="replace") as file:
    raise Unready(f"{process.args[0]} does not answer:\n{file.read()[-2000:]}")


class Servers:
  """Processes that were started here, and end here."""

  def __init__(self, folder):
    self.folder, self.processes = folder, {}
    self.lock, self.stopping, self.keepers = threading.Lock(), False, []

  def keep(self, name, pids):
    """From now on it is started again wherever somebody kills it, and the file
    `name` in `pids` says which process it is."""
    def said():
      partial = os.path.join(pids, name + ".new")
      with open(partial, "w", encoding="utf-8") as file:
        file.write(str(self.processes[name].pid))
      os.replace(partial, os.path.join(pids, name))

    def keeping():
      while True:
        process = self.processes[name]
        process.wait()
        with self.lock:
          if self.stopping:
            return
          self.start(name, *process.args)
        said()

    said()
    self.keepers.append(threading.Thread(target=keeping))
    self.keepers[-1].start()

  def start(self, name, *command, **environment):
    log = os.path.join(self.folder, name + ".out")
    with open(log, "ab") as file:
      self.processes[name] = subprocess.Popen(
          command, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
          env={**os.environ, **environment}, start_new_session=True)
    return self.processes[name], log

  def stop(self):
    with self.lock:
      self.stopping = True
    for process in reversed(self.processes.values()):
      process.kill()
    for process in self.processes.values():
      process.wait()
    for keeper in self.keepers:
      keeper.join()

  def call(self, *command):
    done = subprocess.run(command, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=PATIENCE,
                          check=False)
    if done.returncode != 0:
      text = done.stdout.decode(errors="replace")
      raise Unready(f"{' '.join(command)}:\n{text[-2000:]}")
    return done.stdout


def start_ceph(servers):
  """A cluster of one monitor and one OSD, a pool, and a gateway with a user."""
  folder = servers.folder
  for name in ("mon", "osd", "rgw"):
    os.mkdir(os.path.join(folder, name))
  conf = os.path.join(folder, "ceph.conf")
  mon_port, rgw_port = free_ports(2)
  fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
  with open(conf, "w", encoding="utf-8") as file:
    file.write(CONF.format(fsid=fsid, folder=folder, mon_port=mon_port))
  of = ("-c", conf)
  keyring = f"{folder}/keyring"
  allowed = {"mon.": "mon", "client.admin": "mon osd mgr", "osd.0": "mon osd"}
  servers.call("ceph-authtool", "--create-keyring", keyring)
  for name, of_whom in allowed.items():
    caps = [word for who in of_whom.split() for word in (
        "--cap", who, "allow profile osd" if name == "osd.0" and who == "mon"
        else "allow *")]
    servers.call("ceph-authtool", keyring, "--gen-key", "-n", name, *caps)
  servers.call("monmaptool", "--create", "--fsid", fsid, "--addv", "a",
               f"[v2:127.0.0.1:{mon_port}]", f"{folder}/monmap")
  servers.call("ceph-mon", *of, "-i", "a", "--mkfs", "--monmap",
               f"{folder}/monmap", "--keyring", keyring)
  servers.start("mon", "ceph-mon", *of, "-f", "-i", "a")
  ceph = ("ceph", *of, "--connect-timeout", str(PATIENCE))
  servers.call(*ceph, "osd", "new", osd)
  servers.call("ceph-osd", *of, "-i", "0", "--mkfs", "--osd-uuid", osd)
  server, _ = servers.start("osd", "ceph-osd", *of, "-f", "-i", "0")
  servers.call(*ceph, "osd", "pool", "create", POOL, "8")
  # Its first operation waits until the OSD is there.
  servers.call("rados", *of, "-p", POOL, "ls")
  servers.call("radosgw-admin", *of, "user", "create", "--uid=ckptree",
               "--display-name=ckptree", f"--access-key={ACCESS}",
               f"--secret-key={SECRET}")
  gateway, log = servers.start(
      "radosgw", "radosgw", *of, "-f", "-n", "client.admin",
      f"--keyring={keyring}",
      f"--rgw_frontends=beast endpoint=127.0.0.1:{rgw_port}")
  wait_for_http(rgw_port, gateway, log)
  pids = os.path.join(folder, "pids")
  os.mkdir(pids)
  for name in ("mon", "osd", "radosgw"):
    servers.keep(name, pids)
  return rgw_port, {"CKPTREE_TEST_CEPH_CONF": conf, "CKPTREE_TEST_POOL": POOL,
                    "CKPTREE_TEST_OSD_PID": str(server.pid),
                    "CKPTREE_TEST_PIDS": pids}


def moto_python():
  """An interpreter that has moto, or None."""
  root = os.path.dirname(os.path.dirname(os.path.dirname(
      os.path.abspath(__file__))))
  for python in (os.environ.get("CKPTREE_TEST_MOTO_PYTHON"),
                 os.path.join(root, ".venv", "bin", "python"), sys.executable):
    if python and os.path.exists(python) and subprocess.run(
        [python, "-c", "import moto.server"], stderr=subprocess.DEVNULL,
        check=False).returncode == 0:
      return python
  return None


def start_moto(servers):
  port, = free_ports(1)
  server, log = servers.start(
      "moto", moto_python(), "-m", "moto.server", "-H", "127.0.0.1", "-p",
      str(port))
  wait_for_http(port, server, log)
  return port, {}


def start_wrong(how):
  def start(servers):
    port, = free_ports(1)
    server, log = servers.start(
        how, sys.executable,
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "wrong_s3.py"),
        str(port), how)
    wait_for_http(port, server, log)
    return port, {"CKPTREE_TEST_WRONG": how}
  return start


WRONG = ("ignores", "refuses", "restarts", "headless", "absent", "rotates",
         "empty")
START = {"ceph": start_ceph, "moto": start_moto,
         **{how: start_wrong(how) for how in WRONG}}


def missing(kind):
  """Why the servers of `kind` cannot be started, or None."""
  if kind == "without":
    return "the libraries were not there when the engine was built"
  if kind == "moto":
    return None if moto_python() else "moto is not installed in .venv"
  if kind in WRONG:
    return None
  wanted = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "rados",
            "ceph-authtool", "monmaptool")
  gone = [name for name in wanted if not shutil.which(name)]
  return f"{', '.join(gone)} not installed" if gone else None


def make_bucket(port, environment):
  """By curl: what the tests are about is not what makes their bucket."""
  subprocess.run(
      ["curl", "--silent", "--show-error", "--fail-with-body", "-X", "PUT",
       "--aws-sigv4", f"aws:amz:{REGION}:s3", "--user", f"{ACCESS}:{SECRET}",
       "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
       f"http://127.0.0.1:{port}/{BUCKET}"],
      env=environment, stdout=subprocess.DEVNULL, check=True)


def main():
  if len(sys.argv) < 4 or sys.argv[1] not in (*START, "without") or (
      sys.argv[2] != "--"):
    print(__doc__)
    return 2
  kind, command = sys.argv[1], sys.argv[3:]
  reason = missing(kind)
  if reason:
    print(f"SKIPPED: {os.path.basename(command[0])}, {kind}: {reason}; "
          "scripts/install_packages remote")
    return SKIPPED
  # So that what is below ends where the test is ended.
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
  # Short: the sockets of Ceph have room for a hundred letters.
  with tempfile.TemporaryDirectory(prefix="ckptree-servers-") as folder:
    servers = Servers(folder)
    try:
      begun = time.monotonic()
      port, more = START[kind](servers)
      environment = {
          **os.environ, **more, "AWS_ACCESS_KEY_ID": ACCESS,
          "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION,
          "CKPTREE_TEST_S3": f"http://127.0.0.1:{port}",
          "CKPTREE_TEST_BUCKET": BUCKET}
      make_bucket(port, environment)
      print(f"{kind} started in {time.monotonic() - begun:.1f} s", flush=True)
      return subprocess.run(command, env=environment, check=False).returncode
    finally:
      servers.stop()


if __name__ == "__main__":
  sys.exit(main())
