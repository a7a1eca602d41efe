//! `betrfs image`: a picture whose numbers are those of `df`.

use std::fs;
use std::path::Path;

use roxmltree::{Document, Node};
use serde_json::Value;

use crate::administration::{json, noise, run, said};
use crate::mounted::{Mounted, betrfs, ended_with, ok, refused};

const MIB: usize = 1 << 20;

fn number(node: &Node<'_, '_>, attribute: &str) -> u64 {
    node.attribute(attribute).unwrap().parse().unwrap()
}

/// Draws a volume and returns the picture's text; the document printed fits to it.
fn drawn(volume: &Path, to: &Path) -> String {
    let told = json("image", volume, &[to.to_str().unwrap(), "--force"]);
    let svg = fs::read_to_string(to).unwrap();
    assert!(svg.len() < 1 << 20, "{} bytes", svg.len());
    let cells = told["cells"].as_u64().unwrap();
    assert!(
        cells <= 3072
            && cells * told["cell_bytes"].as_u64().unwrap() >= told["volume_bytes"].as_u64().unwrap()
    );
    svg
}

/// The bytes of the legend by name, which are also those of the cells that are drawn.
fn legend(svg: &str) -> Vec<(String, u64)> {
    let document = Document::parse(svg).unwrap();
    let of_class = |class: &'static str| {
        document.descendants().filter(move |node| node.attribute("class") == Some(class))
    };
    let cells: u64 = of_class("cells").map(|cells| number(&cells, "width") / 12).sum();
    assert!(cells > 1000 && cells <= 3072, "{cells} cells");
    let legend: Vec<(String, u64)> = of_class("legend")
        .map(|item| (item.attribute("data-content").unwrap().to_owned(), number(&item, "data-bytes")))
        .collect();
    for cells in of_class("cells") {
        let content = cells.attribute("data-content").unwrap();
        assert!(legend.iter().any(|(name, _)| name == content), "{content} is not in the legend");
    }
    // All of it is on the page.
    let (width, height) =
        (number(&document.root_element(), "width"), number(&document.root_element(), "height"));
    for rect in document.descendants().filter(|node| node.has_tag_name("rect")) {
        let at = |name: &str| rect.attribute(name).map_or(0, |place| place.parse::<u64>().unwrap());
        assert!(at("x") + at("width") <= width && at("y") + at("height") <= height, "{rect:?}");
    }
    legend
}

fn same_as_df(svg: &str, df: &Value) {
    let legend = legend(svg);
    let sum = |begins: &str| -> u64 {
        legend.iter().filter(|(name, _)| name.starts_with(begins)).map(|(_, bytes)| bytes).sum()
    };
    let bytes = |name: &str| df[format!("{name}_bytes")].as_u64().unwrap();
    assert_eq!(sum(""), bytes("volume"));
    assert_eq!(
        (sum("superblocks"), sum("log"), sum("held")),
        (bytes("superblock"), bytes("log"), bytes("held"))
    );
    assert_eq!((sum("data"), sum("table")), (bytes("data"), bytes("node_table")));
    assert_eq!(sum("metadata") + sum("table"), bytes("metadata"));
    assert_eq!(sum("free"), bytes("pending") + bytes("reserve") + bytes("available"));
    let shared: u64 =
        legend.iter().filter(|(name, _)| name.ends_with("-shared")).map(|(_, bytes)| bytes).sum();
    assert_eq!(shared, bytes("shared"));
}

#[test]
fn a_picture_is_svg_with_the_sums_of_df_and_the_directories() {
    let mounted = Mounted::of_size("256M");
    ok(&run("label", &mounted.volume, &["a<b> & \"c\""]));
    mounted.mount();
    for name in ["one", "two & <three>"] {
        fs::create_dir(mounted.path(name)).unwrap();
        fs::write(mounted.path(name).join("f"), noise(8 * MIB)).unwrap();
    }
    ok(&betrfs().arg("clone").args([mounted.path("one"), mounted.path("copy")]).output().unwrap());
    mounted.umount();
    let to = mounted.volume.with_extension("svg");
    let before = fs::read(&mounted.volume).unwrap();
    let closed = drawn(&mounted.volume, &to);
    assert!(fs::read(&mounted.volume).unwrap() == before, "the closed volume was written");
    same_as_df(&closed, &json("df", &mounted.volume, &[]));
    mounted.mount();
    let served = drawn(&mounted.dir, &to);
    same_as_df(&served, &json("df", &mounted.dir, &[]));
    assert_eq!(legend(&served), legend(&closed));

    for svg in [closed, served] {
        let document = Document::parse(&svg).unwrap();
        let title = document.descendants().find(|node| node.has_tag_name("title")).unwrap().text().unwrap();
        assert!(title.starts_with("a<b> & \"c\" ("), "{title}");
        let directories: Vec<Node<'_, '_>> =
            document.descendants().filter(|node| node.attribute("class") == Some("directory")).collect();
        let names: Vec<&str> = directories
            .iter()
            .map(|node| {
                node.descendants().find_map(|node| node.text().filter(|text| text.starts_with('/'))).unwrap()
            })
            .map(|text| text.split(':').next().unwrap())
            .collect();
        assert_eq!(names, ["/copy", "/one", "/two & <three>"]);
        for (directory, name) in directories.iter().zip(["copy", "one", "two & <three>"]) {
            let usage = json("usage", &mounted.path(name), &[]);
            assert_eq!(
                number(directory, "data-stored-bytes"),
                usage["stored_bytes"].as_u64().unwrap(),
                "{name}"
            );
            assert_eq!(
                number(directory, "data-shared-bytes"),
                usage["shared_bytes"].as_u64().unwrap(),
                "{name}"
            );
        }
    }
}

#[test]
fn of_many_directories_the_first_by_name_are_drawn() {
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    let names: Vec<String> = (0..26).map(|number| format!("d{number:02}")).collect();
    for name in names.iter().rev() {
        fs::create_dir(mounted.path(name)).unwrap();
    }
    let to = mounted.volume.with_extension("svg");
    let first = |svg: String| {
        names.iter().filter(|name| svg.contains(&format!("/{name}: "))).cloned().collect::<Vec<_>>()
    };
    assert_eq!(first(drawn(&mounted.dir, &to)), names[..24]);
    mounted.umount();
    assert_eq!(first(drawn(&mounted.volume, &to)), names[..24]);
}

#[test]
fn a_file_that_exists_stays_and_what_is_no_volume_is_refused() {
    let mounted = Mounted::of_size("64M");
    let to = mounted.volume.with_extension("svg");
    fs::write(&to, "mine").unwrap();
    let plain = |to: &Path| run("image", &mounted.volume, &[to.to_str().unwrap()]);
    let forced = |to: &Path| run("image", &mounted.volume, &[to.to_str().unwrap(), "--force"]);
    // What is no picture stays in any case, the volume itself above all.
    let before = fs::read(&mounted.volume).unwrap();
    for file in [&to, &mounted.volume, &mounted.dir] {
        refused(&plain(file), &["exists", "--force"]);
        refused(&forced(file), &["exists and is no picture"]);
    }
    assert!(fs::read(&mounted.volume).unwrap() == before && fs::read(&to).unwrap() == b"mine");
    let output = run("image", &mounted.volume, &["-"]);
    ok(&output);
    let picture = String::from_utf8(output.stdout).unwrap();
    assert_eq!(Document::parse(&picture).unwrap().root_element().tag_name().name(), "svg");
    assert!(!Path::new("-").exists());
    let both = run("image", &mounted.volume, &["-", "--format", "json"]);
    ended_with(&both, 2, &["not both"]);
    refused(&run("image", &to, &["/dev/null/x.svg"]), &[to.to_str().unwrap(), "not a BetrFS volume"]);
    refused(&run("image", &mounted.dir, &["x.svg"]), &["no BetrFS volume is mounted on"]);
    refused(&plain(&mounted.dir.join("no/x.svg")), &["cannot write", "No such file"]);
    ended_with(&run("image", &mounted.volume, &[]), 2, &["required"]);
    fs::remove_file(&to).unwrap();
    assert!(said(&plain(&to)).contains(" cells of "));
    refused(&plain(&to), &["exists", "--force"]);
    assert!(said(&forced(&to)).contains(" cells of "));
}
