//! Requests that no sound kernel sends: cut short and too long, with lengths that lie, names without an end,
//! numbers at the borders of their types, unknown opcodes, nodes that nobody has seen.

use betrfs::SNAPSHOTS_NAME;
use betrfs_fuse::wire::{self, Opcode, change, ioctl};
use seeded::Rng;

use super::connection::{PLAIN_TASK, ROOT_TASK, Request, Travel};

/// Numbers at which something may change.
const NUMBERS: [u64; 18] = [
    0,
    1,
    2,
    3,
    4,
    7,
    100,
    4095,
    4096,
    4097,
    1 << 20,
    (1 << 20) + 1,
    1 << 31,
    u32::MAX as u64,
    1 << 43,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// The commands of IOCTL.
const COMMANDS: [u32; 15] = [
    ioctl::GET_FLAGS,
    ioctl::SET_FLAGS,
    ioctl::GET_XATTR,
    ioctl::SET_XATTR,
    ioctl::SOURCE,
    ioctl::WRITTEN_BACK,
    ioctl::FILL,
    ioctl::EMPTY,
    ioctl::EMPTY_WITH_SNAPSHOTS,
    ioctl::HELD,
    ioctl::FOREIGN,
    ioctl::RESTORE,
    ioctl::MAY_RESTORE,
    ioctl::USAGE,
    ioctl::PERMIT,
];

/// Names of extended attributes, with their ends.
const XATTRS: [&[u8]; 4] = [b"user.a\0", b"trusted.b\0", b"user.\0", b"none\0"];

/// Draws a request about one of these nodes, or any other. It may change the volume.
pub fn draw(rng: &mut Rng, nodes: &[u64]) -> Request {
    let opcode = if rng.percent(4) { any_number(rng) as u32 } else { *rng.pick(Opcode::ALL) as u32 };
    // DESTROY closes the volume, which is the end of a mount.
    let opcode = if opcode == Opcode::Destroy as u32 { Opcode::Getattr as u32 } else { opcode };
    let known = Opcode::of(opcode).unwrap_or(Opcode::Getattr);
    let mut request = Request::new(known, node(rng, nodes));
    request.header.opcode = opcode;
    request.header.pid = *rng.pick(&[ROOT_TASK, ROOT_TASK, PLAIN_TASK, 0]);
    request.travel = *rng.pick(&[Travel::Device, Travel::Ring]);
    request.structure = structure(rng, known, nodes);
    request.rest = rest(rng, known);
    match rng.below(8) {
        0 => request.structure.truncate(rng.below(request.structure.len() + 1)),
        1 => request.structure.extend((0..rng.below(40)).map(|_| 0xff)),
        2 => request.rest.truncate(rng.below(request.rest.len() + 1)),
        3 => request.rest.extend_from_slice(b"more\0and more"),
        _ => {}
    }
    request
}

fn node(rng: &mut Rng, nodes: &[u64]) -> u64 {
    if rng.percent(10) || nodes.is_empty() { any_number(rng) } else { *rng.pick(nodes) }
}

fn any_number(rng: &mut Rng) -> u64 {
    if rng.percent(20) { rng.next_u64() } else { *rng.pick(&NUMBERS) }
}

/// A structure of the right length, with numbers in its words, and where it names a node mostly one that
/// there is.
fn structure(rng: &mut Rng, opcode: Opcode, nodes: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let len = structure_bytes(opcode);
    while bytes.len() < len {
        if rng.percent(50) {
            bytes.extend_from_slice(&any_number(rng).to_ne_bytes());
        } else {
            bytes.extend_from_slice(&(any_number(rng) as u32).to_ne_bytes());
            bytes.extend_from_slice(&(any_number(rng) as u32).to_ne_bytes());
        }
    }
    bytes.truncate(len);
    let mut put = |at: usize, number: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at + number.len()) {
            place.copy_from_slice(number);
        }
    };
    let is_likely = rng.percent(70);
    match opcode {
        Opcode::Ioctl if is_likely => {
            put(std::mem::offset_of!(wire::IoctlIn, cmd), &rng.pick(&COMMANDS).to_ne_bytes());
        }
        Opcode::Link | Opcode::Rename | Opcode::Rename2 if is_likely => {
            put(0, &node(rng, nodes).to_ne_bytes());
        }
        Opcode::CopyFileRange | Opcode::CopyFileRange64 if is_likely => {
            put(std::mem::offset_of!(wire::CopyFileRangeIn, nodeid_out), &node(rng, nodes).to_ne_bytes());
        }
        Opcode::Write | Opcode::Read | Opcode::Readdir | Opcode::Readdirplus if is_likely => {
            let size = rng.below(9000) as u32;
            put(std::mem::offset_of!(wire::ReadIn, size), &size.to_ne_bytes());
            put(std::mem::offset_of!(wire::ReadIn, offset), &(rng.below(9000) as u64).to_ne_bytes());
        }
        Opcode::Setxattr if is_likely => put(0, &(rng.below(9000) as u32).to_ne_bytes()),
        Opcode::Fallocate if is_likely => {
            let mode = *rng.pick(&[0_u32, 1, 3, 0x10, 0x11]);
            put(std::mem::offset_of!(wire::FallocateIn, mode), &mode.to_ne_bytes());
        }
        Opcode::Mknod if is_likely => put(0, &rng.pick(&[0o100_644_u32, 0o010_600]).to_ne_bytes()),
        _ => {}
    }
    bytes
}

/// Names or data behind the structure.
fn rest(rng: &mut Rng, opcode: Opcode) -> Vec<u8> {
    let mut rest = Vec::new();
    match opcode {
        Opcode::Write => rest = vec![7; rng.below(9000)],
        Opcode::Ioctl => rest = any_number(rng).to_ne_bytes().to_vec(),
        Opcode::BatchForget => rest = vec![0xff; rng.below(100)],
        Opcode::Rename | Opcode::Rename2 | Opcode::Symlink => {
            rest.extend(name(rng));
            rest.extend(name(rng));
        }
        Opcode::Setxattr if rng.percent(30) => {
            rest.extend([change::CHANGE, b"\0"].concat());
            rest.extend(change::change_bytes(*rng.pick(&COMMANDS), &any_number(rng).to_ne_bytes()));
            rest.extend(vec![b'n'; rng.below(600)]);
        }
        Opcode::Setxattr => {
            rest.extend_from_slice(rng.pick::<&[u8]>(&XATTRS));
            rest.extend(vec![9; rng.below(9000)]);
        }
        Opcode::Getxattr | Opcode::Removexattr => {
            rest.extend_from_slice(rng.pick::<&[u8]>(&XATTRS));
        }
        _ => rest.extend(name(rng)),
    }
    rest
}

/// A name with its end, mostly.
fn name(rng: &mut Rng) -> Vec<u8> {
    let mut name = match rng.below(20) {
        0 => Vec::new(),
        1 => b".".to_vec(),
        2 => b"..".to_vec(),
        3 => b"a/b".to_vec(),
        4 => SNAPSHOTS_NAME.to_vec(),
        5 => vec![b'n'; 255],
        6 => vec![b'n'; 256],
        7 => vec![b'n'; 70_000],
        8 => vec![0xff, 1, 2],
        9 => b".betrfs-clone-0".to_vec(),
        _ => vec![*rng.pick(b"abcdef")],
    };
    if !rng.percent(3) {
        name.push(0);
    }
    name
}

/// The length of the structure of an opcode.
pub fn structure_bytes(opcode: Opcode) -> usize {
    match opcode {
        Opcode::Forget => size_of::<wire::ForgetIn>(),
        Opcode::BatchForget => size_of::<wire::BatchForgetIn>(),
        Opcode::Setattr => size_of::<wire::SetattrIn>(),
        Opcode::Mknod => size_of::<wire::MknodIn>(),
        Opcode::Mkdir => size_of::<wire::MkdirIn>(),
        Opcode::Rename => size_of::<wire::RenameIn>(),
        Opcode::Rename2 => size_of::<wire::Rename2In>(),
        Opcode::Link => size_of::<wire::LinkIn>(),
        Opcode::Open => size_of::<wire::OpenIn>(),
        Opcode::Create | Opcode::Tmpfile => size_of::<wire::CreateIn>(),
        Opcode::Release => size_of::<wire::ReleaseIn>(),
        Opcode::Read | Opcode::Readdir | Opcode::Readdirplus => size_of::<wire::ReadIn>(),
        Opcode::Write => size_of::<wire::WriteIn>(),
        Opcode::Setxattr => size_of::<wire::SetxattrWhole>(),
        Opcode::Getxattr | Opcode::Listxattr => size_of::<wire::GetxattrIn>(),
        Opcode::Fallocate => size_of::<wire::FallocateIn>(),
        Opcode::Lseek => size_of::<wire::LseekIn>(),
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => size_of::<wire::CopyFileRangeIn>(),
        Opcode::Ioctl => size_of::<wire::IoctlIn>(),
        Opcode::Statx => size_of::<wire::StatxIn>(),
        _ => 0,
    }
}
