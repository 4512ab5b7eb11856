//! An Apache Kafka broker as a child process, from a folder of jars.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use milena_testkit::ReservedPort;
use tempfile::TempDir;

use crate::Result;

const PROPERTIES: &str = include_str!("../../kafka/server.properties");

/// Any 16 bytes in URL-safe base64.
const CLUSTER_ID: &str = "MkU3OEVBNTcwNTJENDM2Qg";

/// What Kafka's own start script gives its virtual machine.
const JVM: [&str; 7] = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];

/// A running broker. Dropping it kills it and removes its data.
#[derive(Debug)]
pub(super) struct Kafka {
    process: Child,
    folder: TempDir,
    port: ReservedPort,
    _controller: ReservedPort,
}

impl Kafka {
    /// Formats a new folder and starts a broker on it; it does not answer yet.
    pub(super) fn start(jars: &Path) -> Result<Self> {
        let folder = TempDir::with_prefix("kafka-")?;
        let (port, controller) = (ReservedPort::take(), ReservedPort::take());
        let path = folder.path().display().to_string();
        let properties = PROPERTIES
            .replace("{port}", &port.number().to_string())
            .replace("{controller}", &controller.number().to_string())
            .replace("{folder}", &path);
        let file = folder.path().join("server.properties");
        std::fs::write(&file, properties)?;
        let output = File::create(folder.path().join("output"))?;
        let java = |class: &str| -> Result<Command> {
            let mut command = Command::new("java");
            command.args(JVM).arg("-cp").arg(jars.join("*")).arg(class).current_dir(folder.path());
            command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
            Ok(command)
        };
        let mut format = java("kafka.tools.StorageTool")?;
        let formatted = format.args(["format", "-t", CLUSTER_ID, "-c"]).arg(&file).status();
        let formatted = formatted.map_err(|error| format!("java: {error}"))?;
        if !formatted.success() {
            return Err(format!("Kafka's storage cannot be formatted: {}", output_of(&folder)).into());
        }
        let process = java("kafka.Kafka")?.arg(&file).spawn()?;
        Ok(Self { process, folder, port, _controller: controller })
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it has written so far.
    pub(super) fn output(&self) -> String {
        output_of(&self.folder)
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn output_of(folder: &TempDir) -> String {
    std::fs::read_to_string(folder.path().join("output")).unwrap_or_default()
}
