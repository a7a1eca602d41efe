//! JSON documents against their schemas in `docs/schemas/`: the part of JSON Schema (draft 2020-12) that
//! these use. Fields that a schema does not name are refused here, though readers have to expect them.

use std::fs;

use serde_json::Value;

/// Asserts that a document is as its schema says.
pub fn valid(schema: &str, document: &Value) {
    let path = format!("{}/../../docs/schemas/{schema}.json", env!("CARGO_MANIFEST_DIR"));
    let schema: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let problems = problems(&schema, &schema, document, "");
    assert!(problems.is_empty(), "{problems:?} in {document}");
}

/// What is wrong with a value at a place of a document.
fn problems(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (keyword, wanted) in schema.as_object().unwrap() {
        let is_right = match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" => true,
            "$ref" => {
                let definition = root.pointer(wanted.as_str().unwrap().trim_start_matches('#')).unwrap();
                found.extend(problems(root, definition, value, at));
                true
            }
            "type" => match wanted {
                Value::Array(kinds) => kinds.iter().any(|kind| is_a(kind.as_str().unwrap(), value)),
                kind => is_a(kind.as_str().unwrap(), value),
            },
            "const" => value == wanted,
            "enum" => wanted.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|number| number >= wanted.as_f64().unwrap()),
            "required" => {
                let names = wanted.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                value.as_object().is_none_or(|fields| names.into_iter().all(|name| fields.contains_key(name)))
            }
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    found.extend(problems(root, wanted, item, &format!("{at}/{i}")));
                }
                true
            }
            // Of patterns only ends of names, as `_hex$`; they are looked at with the names.
            "patternProperties" => schema.get("properties").is_some(),
            "properties" | "additionalProperties" => {
                let by_end = |name: &str| {
                    let patterns = schema.get("patternProperties")?.as_object()?;
                    let found = patterns.iter().find(|(end, _)| name.ends_with(end.trim_end_matches('$')));
                    found.map(|(_, schema)| schema)
                };
                for (name, field) in value.as_object().into_iter().flatten() {
                    let at = format!("{at}/{name}");
                    let named = || wanted.get(name).or_else(|| by_end(name));
                    match if keyword == "properties" { named() } else { Some(wanted) } {
                        Some(schema) => found.extend(problems(root, schema, field, &at)),
                        None => found.push(format!("{at} is not in the schema")),
                    }
                }
                true
            }
            // One that this does not know would not be checked.
            _ => false,
        };
        if !is_right {
            found.push(format!("`{at}` is not {keyword} {wanted}"));
        }
    }
    found
}

fn is_a(kind: &str, value: &Value) -> bool {
    match kind {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => false,
    }
}

#[test]
fn what_a_schema_does_not_allow_is_found() {
    let schema = serde_json::json!({
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": { "type": ["integer", "null"], "minimum": 0 },
            "b": { "type": "array", "items": { "$ref": "#/$defs/b" } },
            "c": { "type": "object", "additionalProperties": { "enum": ["x", "y"] } },
            "d": { "const": 1 },
        },
        "patternProperties": { "_hex$": { "type": "string" } },
        "$defs": { "b": { "type": "string" } },
    });
    let wrong = |text: &str| !problems(&schema, &schema, &serde_json::from_str(text).unwrap(), "").is_empty();
    for text in [
        r#"{"a": null}"#,
        r#"{"a": 0, "b": [], "c": {}, "d": 1}"#,
        r#"{"a": 1, "b": ["b"], "c": {"any": "y"}}"#,
    ] {
        assert!(!wrong(text), "{text}");
    }
    for text in [
        "[]",
        "{}",
        r#"{"a": "1"}"#,
        r#"{"a": 1.5}"#,
        r#"{"a": -1}"#,
        r#"{"a": 1, "more": 1}"#,
        r#"{"a": 1, "b": ["b", 2]}"#,
        r#"{"a": 1, "c": {"any": "z"}}"#,
        r#"{"a": 1, "d": 2}"#,
        r#"{"a": 1, "d_hex": 2}"#,
        r#"{"a": 1, "d_hexa": "ff"}"#,
    ] {
        assert!(wrong(text), "{text}");
    }
    let unknown = serde_json::json!({ "maximum": 3 });
    assert!(!problems(&unknown, &unknown, &Value::from(1), "").is_empty());
}
