//! Kinds of requests.

/// Declares the opcodes with the kernel's numbers, and its names in lower case.
macro_rules! opcodes {
    ($($variant:ident = $number:literal, $name:literal;)*) => {
        /// A kind of kernel request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Opcode {
            $($variant = $number,)*
        }

        impl Opcode {
            /// Every kind, in the order of their numbers.
            pub const ALL: &[Opcode] = &[$(Opcode::$variant,)*];

            /// The opcode with this number, if it is served.
            pub fn of(number: u32) -> Option<Opcode> {
                match number {
                    $($number => Some(Opcode::$variant),)*
                    _ => None,
                }
            }

            /// The kernel's name for it, in lower case.
            pub fn name(self) -> &'static str {
                match self {
                    $(Opcode::$variant => $name,)*
                }
            }
        }
    };
}

opcodes! {
    Lookup = 1, "lookup";
    Forget = 2, "forget";
    Getattr = 3, "getattr";
    Setattr = 4, "setattr";
    Readlink = 5, "readlink";
    Symlink = 6, "symlink";
    Mknod = 8, "mknod";
    Mkdir = 9, "mkdir";
    Unlink = 10, "unlink";
    Rmdir = 11, "rmdir";
    Rename = 12, "rename";
    Link = 13, "link";
    Open = 14, "open";
    Read = 15, "read";
    Write = 16, "write";
    Statfs = 17, "statfs";
    Release = 18, "release";
    Fsync = 20, "fsync";
    Setxattr = 21, "setxattr";
    Getxattr = 22, "getxattr";
    Listxattr = 23, "listxattr";
    Removexattr = 24, "removexattr";
    Flush = 25, "flush";
    Init = 26, "init";
    Opendir = 27, "opendir";
    Readdir = 28, "readdir";
    Fsyncdir = 30, "fsyncdir";
    Create = 35, "create";
    Interrupt = 36, "interrupt";
    Destroy = 38, "destroy";
    Ioctl = 39, "ioctl";
    BatchForget = 42, "batch_forget";
    Fallocate = 43, "fallocate";
    Readdirplus = 44, "readdirplus";
    Rename2 = 45, "rename2";
    Lseek = 46, "lseek";
    CopyFileRange = 47, "copy_file_range";
    Syncfs = 50, "syncfs";
    Tmpfile = 51, "tmpfile";
    Statx = 52, "statx";
    CopyFileRange64 = 53, "copy_file_range_64";
}

impl Opcode {
    /// One more than the largest number.
    pub const END: usize = Opcode::CopyFileRange64 as usize + 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_kinds_and_back() {
        for opcode in Opcode::ALL {
            assert_eq!(Opcode::of(*opcode as u32), Some(*opcode));
            assert!((*opcode as usize) < Opcode::END);
        }
        assert!(Opcode::ALL.is_sorted_by_key(|opcode| *opcode as u32));
        for number in [0, 7, 19, 40, 4096, u32::MAX] {
            assert_eq!(Opcode::of(number), None);
        }
    }
}
