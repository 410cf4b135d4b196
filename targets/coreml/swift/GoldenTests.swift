// Runs the package beside this file on golden.json: every output has to be within the share of its largest value.
// Add this file, golden.json and the package to a test target, or set GOLDEN_FOLDER to the folder that holds them.

import CoreML
import XCTest

final class GoldenTests: XCTestCase {
    struct Tensor: Decodable {
        let shape: [Int]
        let type: String
        let data: Data
    }

    struct Vector: Decodable {
        let inputs: [String: Tensor]
        let outputs: [String: Tensor]
    }

    struct Golden: Decodable {
        let package: String
        let relative: Double
        let vectors: [Vector]
    }

    func testGoldenVectorsOnCPU() async throws {
        try await compare(.cpuOnly)
    }

    func testGoldenVectorsOnAllUnits() async throws {
        try await compare(.all)
    }

    private var folder: URL {
        if let given = ProcessInfo.processInfo.environment["GOLDEN_FOLDER"] {
            return URL(fileURLWithPath: given, isDirectory: true)
        }
        return URL(fileURLWithPath: #filePath).deletingLastPathComponent()
    }

    private func compare(_ units: MLComputeUnits) async throws {
        let data = try Data(contentsOf: folder.appendingPathComponent("golden.json"))
        let golden = try JSONDecoder().decode(Golden.self, from: data)
        let compiled = try await MLModel.compileModel(at: folder.appendingPathComponent(golden.package))
        let configuration = MLModelConfiguration()
        configuration.computeUnits = units
        let model = try MLModel(contentsOf: compiled, configuration: configuration)
        XCTAssertFalse(golden.vectors.isEmpty)
        for vector in golden.vectors {
            let features = try MLDictionaryFeatureProvider(dictionary: vector.inputs.mapValues { try array($0) })
            let found = try await model.prediction(from: features)
            for (name, expected) in vector.outputs {
                let result = try XCTUnwrap(found.featureValue(for: name)?.multiArrayValue, "no output \(name)")
                check(name, result, expected, golden.relative)
            }
        }
    }

    private func check(_ name: String, _ result: MLMultiArray, _ expected: Tensor, _ relative: Double) {
        let wanted = numbers(expected)
        XCTAssertEqual(result.count, wanted.count, name)
        guard result.count == wanted.count else { return }
        let largest = wanted.filter { $0.isFinite }.map { abs($0) }.max() ?? 0
        for (place, want) in wanted.enumerated() where want.isFinite {
            let have = result[place].doubleValue
            XCTAssertEqual(have, want, accuracy: relative * max(largest, 1e-6), "\(name)[\(place)]")
        }
    }

    private func array(_ tensor: Tensor) throws -> MLFeatureValue {
        let types: [String: MLMultiArrayDataType] = ["float32": .float32, "float16": .float16, "int32": .int32]
        let type = try XCTUnwrap(types[tensor.type], tensor.type)
        let made = try MLMultiArray(shape: tensor.shape.map { NSNumber(value: $0) }, dataType: type)
        for (place, number) in numbers(tensor).enumerated() {
            made[place] = NSNumber(value: number)
        }
        return MLFeatureValue(multiArray: made)
    }

    private func numbers(_ tensor: Tensor) -> [Double] {
        func read<T>(_ type: T.Type) -> [T] {
            let count = tensor.data.count / MemoryLayout<T>.size
            return tensor.data.withUnsafeBytes { raw in
                (0..<count).map { raw.loadUnaligned(fromByteOffset: $0 * MemoryLayout<T>.size, as: type) }
            }
        }
        switch tensor.type {
        case "float32": return read(Float.self).map(Double.init)
        case "int32": return read(Int32.self).map(Double.init)
        default: return read(UInt16.self).map(halfPrecision)
        }
    }

    /// A float16 from its bits; `Float16` itself is missing on Macs with Intel processors.
    private func halfPrecision(_ bits: UInt16) -> Double {
        let sign: Double = bits & 0x8000 == 0 ? 1 : -1
        let exponent = Int((bits >> 10) & 0x1F)
        let fraction = Double(bits & 0x3FF)
        if exponent == 31 { return fraction == 0 ? sign * .infinity : .nan }
        if exponent == 0 { return sign * fraction * pow(2, -24) }
        return sign * (1 + fraction / 1024) * pow(2, Double(exponent - 15))
    }
}
